package config

import "strings"

// Nearest returns the name that word was most likely meant to be: the one with
// the fewest inserted, removed or replaced bytes, at most two and fewer than
// half of the word, or empty. A word without a dot is also compared with the
// last part of dotted names. Of equals that wins which has more of its beginning
// and end in common with the word, then the first.
func Nearest(word string, names []string) string {
	word = strings.ToLower(word)
	best, bestDistance, bestCommon := "", min(2, len(word)/2)+1, 0
	for _, name := range names {
		if name == "" {
			continue
		}
		d := distance(word, strings.ToLower(name))
		if i := strings.LastIndexByte(name, '.'); i >= 0 && !strings.Contains(word, ".") {
			d = min(d, distance(word, strings.ToLower(name[i+1:])))
		}
		common := shared(word, strings.ToLower(name))
		if d < bestDistance || d == bestDistance && best != "" && common > bestCommon {
			best, bestDistance, bestCommon = name, d, common
		}
	}
	return best
}

// shared counts the bytes that a and b have in common at their beginning and,
// behind that, at their end.
func shared(a, b string) int {
	n := min(len(a), len(b))
	front := 0
	for front < n && a[front] == b[front] {
		front++
	}
	back := 0
	for front+back < n && a[len(a)-1-back] == b[len(b)-1-back] {
		back++
	}
	return front + back
}

// distance is the Levenshtein distance of a and b in bytes, by the row method
// of Wagner and Fischer (1974). Words longer than 64 bytes are far from all.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	var rows [2][65]int
	previous, current := &rows[0], &rows[1]
	for j := range len(b) + 1 {
		previous[j] = j
	}
	for i := range len(a) {
		current[0] = i + 1
		for j := range len(b) {
			replaced := previous[j]
			if a[i] != b[j] {
				replaced++
			}
			current[j+1] = min(previous[j+1]+1, current[j]+1, replaced)
		}
		previous, current = current, previous
	}
	return previous[len(b)]
}
