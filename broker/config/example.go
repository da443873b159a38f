package config

import (
	"fmt"
	"strings"
)

// Example returns a configuration file with every key at its default, each
// commented out and explained. Load reads it as it is and with every
// "#key = value" line uncommented.
func Example() string {
	var b strings.Builder
	b.WriteString("# Configuration of a millrace broker: key = value, one a line, # begins a comment.\n" +
		"# Flags (--key value) override the environment (MILLRACE_SECTION_KEY), that this file, and that the defaults.\n" +
		"# The lines below are the defaults; remove the # of those that you change.\n")
	for i := range keys {
		k := &keys[i]
		b.WriteByte('\n')
		for _, line := range wrap(k.Doc, 96) {
			b.WriteString("# " + line + "\n")
		}
		if bounds := k.Bounds(); bounds != "" {
			b.WriteString("# " + bounds + "\n")
		}
		fmt.Fprintf(&b, "#%s = %s\n", k.Name, k.Default)
	}
	return b.String()
}

// Bounds returns what values the key takes besides those that its kind says:
// "1 to 256 syncs", "exit, readonly", or empty.
func (k *Key) Bounds() string {
	if k.Kind == KindChoice {
		return strings.Join(k.Choices, ", ")
	}
	if k.Max == 0 {
		return ""
	}
	show := func(n int64) string { return fmt.Sprint(n) }
	unit := ""
	switch k.Kind {
	case KindSize:
		show = FormatSize
	case KindDuration:
		show = formatNanoseconds
	default:
		unit = " " + k.Unit
	}
	text := show(k.Min) + " to " + show(k.Max) + unit
	if k.Zero != "" {
		text += "; 0 = " + k.Zero
	}
	return text
}

// wrap breaks text at spaces into lines of at most width bytes where words allow.
func wrap(text string, width int) []string {
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
