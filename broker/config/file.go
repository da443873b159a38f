package config

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxFileBytes is the largest configuration file that Load reads.
const MaxFileBytes = 1 << 20

// entry is one setting as it was written.
type entry struct {
	key    string
	value  string
	origin Origin
}

// parseFile reads a configuration file. One line is one of
//
//	                      blank
//	# text                a comment
//	key = value           comment allowed after " #"
//	key = "value # \" "   a Go string, for values with #, quotes or outer spaces
//
// Lines end with LF or CRLF; a byte order mark is skipped. A key may stand
// once. Keys and values are not checked against the table here.
func parseFile(name string, text []byte, problems *Problems) []entry {
	if len(text) > MaxFileBytes {
		problems.add(Origin{Source: SourceFile, Name: name, Line: 1}, "", "",
			fmt.Sprintf("the file has %d bytes, at most %d", len(text), MaxFileBytes))
		return nil
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	var entries []entry
	seen := make(map[string]int)
	for i, raw := range strings.Split(string(text), "\n") {
		at := Origin{Source: SourceFile, Name: name, Line: i + 1}
		key, value, err := parseLine(strings.TrimSuffix(raw, "\r"))
		if err != "" {
			problems.add(at, key, value, err)
			continue
		}
		if key == "" {
			continue
		}
		if first := seen[key]; first != 0 {
			problems.add(at, key, value, fmt.Sprintf("set twice (first on line %d)", first))
			continue
		}
		seen[key] = at.Line
		entries = append(entries, entry{key, value, at})
	}
	return entries
}

// parseLine returns the key and value of a line, both empty for a blank line
// or a comment, and what is wrong with it.
func parseLine(line string) (key, value, problem string) {
	if !utf8.ValidString(line) {
		return "", "", "the line is not UTF-8"
	}
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return "", "", ""
	}
	if line[0] == '[' {
		return "", "", fmt.Sprintf("%q: there are no sections; write the full key on each line, as in \"listen.client = …\"", shorten(line))
	}
	key, value, found := strings.Cut(line, "=")
	key = strings.TrimSpace(key)
	if !found {
		return shorten(key), "", "no \"=\"; a line is \"key = value\""
	}
	if bad := strings.IndexFunc(key, notInKey); bad >= 0 || key == "" {
		return "", "", fmt.Sprintf("%q is not a key (a-z 0-9 . _)", shorten(key))
	}
	value = strings.TrimSpace(value)
	if strings.HasPrefix(value, `"`) {
		quoted, err := strconv.QuotedPrefix(value)
		rest := strings.TrimSpace(strings.TrimPrefix(value, quoted))
		if err != nil || rest != "" && rest[0] != '#' {
			return key, value, "a quoted value must be one string in double quotes, with a comment at most after it"
		}
		unquoted, err := strconv.Unquote(quoted)
		if err != nil {
			return key, value, "not a quoted string"
		}
		return key, unquoted, ""
	}
	return key, cutComment(value), ""
}

func notInKey(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
}

// cutComment removes "# text" at the start of a value or after a space.
func cutComment(value string) string {
	previous := ' '
	for i, r := range value {
		if r == '#' && unicode.IsSpace(previous) {
			return strings.TrimSpace(value[:i])
		}
		previous = r
	}
	return value
}
