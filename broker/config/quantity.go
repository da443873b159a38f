package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

type unit struct {
	name   string // lower case
	factor int64
}

// Units of sizes. A letter alone is binary, as in GNU coreutils: k = KiB, kB = 1000 bytes.
var sizeUnits = []unit{
	{"", 1}, {"b", 1},
	{"k", kib}, {"kib", kib}, {"kb", 1e3},
	{"m", mib}, {"mib", mib}, {"mb", 1e6},
	{"g", gib}, {"gib", gib}, {"gb", 1e9},
	{"t", tib}, {"tib", tib}, {"tb", 1e12},
}

// Units of counts: powers of ten.
var countUnits = []unit{{"", 1}, {"k", 1e3}, {"m", 1e6}, {"g", 1e9}, {"b", 1e9}}

var durationUnits = []unit{
	{"ns", 1}, {"us", int64(time.Microsecond)}, {"µs", int64(time.Microsecond)}, {"ms", int64(time.Millisecond)},
	{"s", int64(time.Second)}, {"m", int64(time.Minute)}, {"h", int64(time.Hour)}, {"d", int64(day)}, {"w", int64(7 * day)},
}

// ParseSize reads a number of bytes: 4096, 64k, 8MiB, 1GB, 1_000_000. Units do
// not depend on case; a letter alone is binary.
//
// Errors: text that is not a whole, non-negative number of a known unit, or
// that is more than 2^63-1 bytes.
func ParseSize(text string) (int64, error) {
	return parseQuantity(text, "a size", sizeUnits, `"1GiB"`)
}

// ParseCount reads a number of things: 1000, 1_000_000, 10k, 1M. Units are
// powers of ten and do not depend on case.
//
// Errors: as ParseSize.
func ParseCount(text string) (int64, error) {
	return parseQuantity(text, "a number", countUnits, `"1_000_000" or "1M"`)
}

func parseQuantity(text, what string, units []unit, example string) (int64, error) {
	digits, rest := splitNumber(text)
	n, err := parseDigits(digits)
	if err != nil {
		return 0, fmt.Errorf("not %s (%w; write it as %s)", what, err, example)
	}
	word := strings.ToLower(strings.TrimSpace(rest))
	for _, u := range units {
		if u.name != word {
			continue
		}
		if n > math.MaxInt64/u.factor {
			return 0, fmt.Errorf("not %s (more than %d)", what, int64(math.MaxInt64))
		}
		return n * u.factor, nil
	}
	names := make([]string, 0, len(units))
	for _, u := range units {
		names = append(names, u.name)
	}
	if near := Nearest(word, names); near != "" {
		return 0, fmt.Errorf("not %s (unknown unit %q; try %q)", what, rest, digits+properUnit(near))
	}
	return 0, fmt.Errorf("not %s (unknown unit %q; write it as %s)", what, rest, example)
}

// properUnit writes a unit as people do: kib → KiB, gb → GB, kb → kB.
func properUnit(lower string) string {
	switch {
	case lower == "kb", len(lower) < 2:
		return lower
	case len(lower) == 3:
		return strings.ToUpper(lower[:1]) + "i" + "B"
	}
	return strings.ToUpper(lower)
}

// splitNumber cuts text after its leading digits and underscores.
func splitNumber(text string) (digits, rest string) {
	i := 0
	for i < len(text) && (text[i] >= '0' && text[i] <= '9' || text[i] == '_') {
		i++
	}
	return text[:i], text[i:]
}

var (
	errNoDigits    = errors.New("it does not start with a digit")
	errUnderscore  = errors.New("an underscore must stand between digits")
	errTooManyBits = errors.New("too large")
)

// parseDigits reads decimal digits with single underscores between them.
func parseDigits(digits string) (int64, error) {
	if digits == "" {
		return 0, errNoDigits
	}
	if digits[0] == '_' || digits[len(digits)-1] == '_' || strings.Contains(digits, "__") {
		return 0, errUnderscore
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(digits, "_", ""), 10, 64)
	if err != nil {
		return 0, errTooManyBits
	}
	return n, nil
}

// ParseDuration reads 250ms, 30s, 1h30m, 7d, 2w or 0: whole numbers with units
// from ns to w, largest unit first, a day being 24 hours.
//
// Errors: anything else, a number without unit, more than 292 years.
func ParseDuration(text string) (time.Duration, error) {
	if text == "0" {
		return 0, nil
	}
	var total int64
	smallest := int64(math.MaxInt64)
	for rest := text; rest != "" || text == ""; {
		digits, after := splitNumber(rest)
		n, err := parseDigits(digits)
		if err != nil {
			return 0, fmt.Errorf("not a duration (%w; write it as \"30s\" or \"7d\")", err)
		}
		end := strings.IndexAny(after, "0123456789")
		if end < 0 {
			end = len(after)
		}
		factor := durationFactor(after[:end])
		switch {
		case after[:end] == "":
			return 0, fmt.Errorf("not a duration (no unit; try %q)", text+"s")
		case factor == 0:
			return 0, fmt.Errorf("not a duration (unknown unit %q; units are ns us ms s m h d w)", after[:end])
		case factor >= smallest:
			return 0, fmt.Errorf("not a duration (unit %q must come before the smaller one)", after[:end])
		case n > (math.MaxInt64-total)/factor:
			return 0, errors.New("not a duration (more than 292 years)")
		}
		total += n * factor
		smallest = factor
		rest = after[end:]
	}
	return time.Duration(total), nil
}

func durationFactor(name string) int64 {
	for _, u := range durationUnits {
		if u.name == name {
			return u.factor
		}
	}
	return 0
}

// FormatSize writes n so that ParseSize reads the same number, with the
// largest binary unit that divides it.
func FormatSize(n int64) string {
	for _, u := range []unit{{"TiB", tib}, {"GiB", gib}, {"MiB", mib}, {"KiB", kib}} {
		if n != 0 && n%u.factor == 0 {
			return strconv.FormatInt(n/u.factor, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// FormatDuration writes a non-negative d so that ParseDuration reads the same
// duration, with as few units as that takes.
func FormatDuration(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	var b strings.Builder
	for _, u := range []unit{
		{"d", int64(day)}, {"h", int64(time.Hour)}, {"m", int64(time.Minute)}, {"s", int64(time.Second)},
		{"ms", int64(time.Millisecond)}, {"us", int64(time.Microsecond)}, {"ns", 1},
	} {
		if n := int64(d) / u.factor; n > 0 {
			b.WriteString(strconv.FormatInt(n, 10) + u.name)
			d -= time.Duration(n * u.factor)
		}
	}
	return b.String()
}

func formatNanoseconds(n int64) string { return FormatDuration(time.Duration(n)) }
