package cli

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// TextTable lines cells up in columns, two spaces apart.
type TextTable struct{ rows [][]string }

// NewTextTable returns an empty table.
func NewTextTable() *TextTable { return &TextTable{} }

// Add adds a row; the first one is the head.
func (t *TextTable) Add(cells []string) { t.rows = append(t.rows, cells) }

// String returns the table; columns in which all cells but the first are
// numbers stand to the right.
func (t *TextTable) String() string {
	var widths []int
	var right []bool
	for r, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths, right = append(widths, 0), append(right, len(t.rows) > 1)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
			right[i] = right[i] && (r == 0 || numberCell.MatchString(cell))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		line := ""
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if right[i] {
				cell, pad = pad+cell, ""
			}
			line += cell + pad + "  "
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// numberCell is a number with a unit at most, or a dash for none.
var numberCell = regexp.MustCompile(`^(\d+(\.\d+)?( ?[a-zA-Zµ/%]{1,5})?|-)$`)
