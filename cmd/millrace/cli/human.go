package cli

import (
	"fmt"
	"strings"
)

// ByteSize is a number of bytes: 1.2 MiB for people, a number for programs.
type ByteSize int64

// Text returns the number with its unit.
func (n ByteSize) Text() string { return HumanSize(int64(n)) }

// HumanSize writes bytes with three digits at most before the unit.
func HumanSize(n int64) string {
	value, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; value >= 1024 && i < len(units)-1; i++ {
		value /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.*f %s", decimals(value), value, units[i])
}

// HumanCount writes a rate or count with a decimal unit: 812, 476k, 1.25M.
func HumanCount(value float64) string {
	units := []string{"", "k", "M", "G", "T"}
	i := 0
	for ; value >= 999.5 && i < len(units)-1; i++ {
		value /= 1000
	}
	if i == 0 {
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.*f%s", decimals(value), value, units[i])
}

func decimals(value float64) int {
	switch {
	case value >= 99.95:
		return 0
	case value >= 9.995:
		return 1
	}
	return 2
}

// Wrap breaks text at spaces into lines of at most width bytes where words allow.
func Wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
