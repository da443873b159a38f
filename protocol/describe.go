package protocol

import (
	"bytes"
	"fmt"
	"io"
	"iter"
	"strings"
)

// Style is how Describe writes.
type Style struct {
	Base  int64 // added to each position: where the frame starts in its file or stream
	Color bool  // terminal colours
	Bytes int   // bytes of one field that are shown; 0 = 64, less than 0 = all
}

const (
	hexPerLine = 8
	colorPlace = "\x1b[2m"
	colorName  = "\x1b[36m"
	colorWrong = "\x1b[31m"
	colorOff   = "\x1b[0m"
)

// Describe writes parts as an annotated hexdump, a line for each field: position, bytes, name,
// value. What does not follow the format begins with "!!".
//
//	err := protocol.Describe(os.Stdout, protocol.Explain(frame, 8), protocol.Style{})
//
// Errors: those of w.
func Describe(w io.Writer, parts iter.Seq[Part], style Style) error {
	var line bytes.Buffer
	for p := range parts {
		line.Reset()
		style.describe(&line, p)
		if _, err := w.Write(line.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

func (s *Style) describe(w *bytes.Buffer, p Part) {
	shown, most := p.Bytes, s.Bytes
	if most == 0 {
		most = 64
	}
	hidden := 0
	if most > 0 && len(shown) > most {
		shown, hidden = shown[:most], len(shown)-most
	}
	first := shown[:min(hexPerLine, len(shown))]
	s.color(w, colorPlace, fmt.Sprintf("%06x", s.Base+int64(p.Pos)))
	fmt.Fprintf(w, "  %-23s  ", hexText(first))
	if p.Wrong {
		s.color(w, colorWrong, "!! "+wrongText(p))
	} else {
		s.color(w, colorName, p.Name)
		fmt.Fprintf(w, "%*s  %s", max(0, 22-len(p.Name)), "", p.Value)
	}
	w.WriteByte('\n')
	for pos := len(first); pos < len(shown); pos += hexPerLine {
		s.color(w, colorPlace, fmt.Sprintf("%06x", s.Base+int64(p.Pos+pos)))
		fmt.Fprintf(w, "  %s\n", hexText(shown[pos:min(pos+hexPerLine, len(shown))]))
	}
	if hidden > 0 {
		s.color(w, colorPlace, fmt.Sprintf("%06x", s.Base+int64(p.Pos+len(shown))))
		fmt.Fprintf(w, "  … %d more\n", hidden)
	}
}

// wrongText names the field unless the text does.
func wrongText(p Part) string {
	if strings.Contains(p.Value, "field "+p.Name) {
		return p.Value
	}
	return p.Name + ": " + p.Value
}

func (s *Style) color(w *bytes.Buffer, code, text string) {
	if !s.Color {
		w.WriteString(text)
		return
	}
	w.WriteString(code + text + colorOff)
}

func hexText(b []byte) string {
	const digits = "0123456789abcdef"
	text := make([]byte, 0, 3*hexPerLine)
	for i, c := range b {
		if i > 0 {
			text = append(text, ' ')
		}
		text = append(text, digits[c>>4], digits[c&0x0F])
	}
	return string(text)
}
