package protocol

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/template"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
)

// TestProtocolDocumentIsCurrent compares docs/protocol.md with what the tables and the template
// give; with -update, as go generate calls it, it writes the document.
func TestProtocolDocumentIsCurrent(t *testing.T) {
	golden(t, "../docs/protocol.md", protocolDocument(t))
}

func protocolDocument(t *testing.T) string {
	source, err := os.ReadFile("testdata/protocol.md.tmpl")
	require.NoError(t, err)
	tmpl, err := template.New("protocol.md").Funcs(template.FuncMap{
		"drawHeader": func(m int) string { return drawClass(Magic(m).Spec()) },
		"classTable": classTable, "classes": classSections, "dataTable": dataTable, "valueTable": valueTable,
		"hexdump": hexLines, "worked": workedCheck, "controlTable": controlTable, "opcodeTable": opcodeTable,
		"messages": messageSections, "errorTable": errorTable, "limitTable": limitTable, "settingTable": settingTable, "keyTable": keyTable,
	}).Parse(string(source))
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, tmpl.Execute(&out, map[string]any{
		"HeaderSize": HeaderSize, "TailSize": TailSize, "PreludeSize": PreludeSize, "StampedBytes": stampedBytes,
		"Prelude": PreludeFields, "Record": RecordFields, "Tail": TailFields,
		"Plain": vectorNamed(t, "data-plain"), "Stamped": vectorNamed(t, "data-stamped"),
		"RequestMagic": fmt.Sprintf("0x%02x", uint8(MagicRequest)), "Unauthenticated": quantity(MaxFrameUnauthenticated, "bytes"),
		"MaxRun": quantity(MaxRun, "bytes"), "MaxName": MaxName, "MaxGroup": MaxGroup, "MaxRecords": grouped(MaxRecords),
	}))
	return out.String()
}

// row writes a line of a table.
func row(s *strings.Builder, cells ...any) {
	for _, c := range cells {
		fmt.Fprintf(s, "| %v ", strings.ReplaceAll(fmt.Sprint(c), "|", "\\|"))
	}
	s.WriteString("|\n")
}

func table(rows func(s *strings.Builder)) string {
	var s strings.Builder
	rows(&s)
	return strings.TrimSuffix(s.String(), "\n")
}

func typeOf(size int) string { return fmt.Sprintf("u%d", 8*size) }

// drawClass draws the header of a class: positions above, names and types in boxes.
func drawClass(c *ClassSpec) string {
	var places, names, types strings.Builder
	for _, f := range c.Fields {
		typ := typeOf(f.Size)
		if f.Size > 8 {
			typ = fmt.Sprintf("%d bytes", f.Size)
		}
		width := max(len(f.Name), len(typ)) + 2
		fmt.Fprintf(&places, "%-*d", width+1, f.Pos)
		fmt.Fprintf(&names, "| %-*s", width-1, f.Name)
		fmt.Fprintf(&types, "| %-*s", width-1, typ)
	}
	return fmt.Sprintf("%s%d\n%s|%s\n%s|", places.String(), HeaderSize, names.String(), behind(c.Magic), types.String())
}

// behind is what the sizes of a class's header may announce.
func behind(m Magic) string {
	switch m {
	case MagicData, MagicRequest:
		return " key … | payload … |"
	case MagicResponse, MagicAck, MagicGoAway:
		return " payload … |"
	}
	return ""
}

func classTable() string {
	return table(func(s *strings.Builder) {
		for _, c := range Classes {
			name := fmt.Sprintf("[%s](#%s)", c.Name, strings.ToLower(c.Name))
			if c.Since == 0 {
				name += ", kept for a later version"
			}
			row(s, fmt.Sprintf("0x%02X", uint8(c.Magic)), name, c.Dir, c.Body)
		}
	})
}

// classSections draws each class with its fields and the flags that they are made of.
func classSections() string {
	var s strings.Builder
	for i := range Classes {
		c := &Classes[i]
		fmt.Fprintf(&s, "\n### %s\n\nMagic 0x%02X, %s. Behind the header: %s.\n\n```\n%s\n```\n\n| bytes | field | type | meaning |\n|---|---|---|---|\n",
			c.Name, uint8(c.Magic), strings.Replace(string(c.Dir), "both", "both ways", 1), c.Body, drawClass(c))
		for _, f := range c.Fields {
			if c.Magic != MagicPeer && (f.Name == "payloadSize" && behind(c.Magic) == "" || f.Name == "keySize" && !strings.Contains(behind(c.Magic), "key")) {
				f.Text = "0"
			}
			typ := typeOf(f.Size)
			if f.Size > 8 {
				typ = "bytes"
			}
			row(&s, place(f.Pos, f.Size), "`"+f.Name+"`", typ, f.Text)
		}
		for _, set := range map[Magic][]string{MagicDeliver: {"deliver flags"}, MagicProduce: {"level"}, MagicRequest: {"create flags"}}[c.Magic] {
			s.WriteString("\n" + valueTable(set) + "\n")
		}
	}
	return s.String()
}

func place(pos, size int) string {
	if size == 1 {
		return fmt.Sprint(pos)
	}
	return fmt.Sprintf("%d–%d", pos, pos+size-1)
}

func dataTable(fields []DataField) string {
	return table(func(s *strings.Builder) {
		announced := fields[len(fields)-1].Flag != 0 // as in the prelude
		if announced {
			s.WriteString("| field | type | announced by | meaning |\n|---|---|---|---|\n")
		} else {
			s.WriteString("| field | type | meaning |\n|---|---|---|\n")
		}
		for _, f := range fields {
			by := "always there"
			for _, v := range Values {
				if v.Set == "prelude flags" && f.Flag != 0 && v.Value == uint64(f.Flag) {
					by = "flag " + v.Name
				}
			}
			if announced {
				row(s, "`"+f.Name+"`", typeOf(f.Size), by, f.Text)
			} else {
				row(s, "`"+f.Name+"`", typeOf(f.Size), f.Text)
			}
		}
	})
}

// captions say what a set of values is of.
var captions = map[string]string{"deliver flags": "Bits of `flags`", "create flags": "Bits of `flags` of TOPIC_CREATE; other opcodes have none", "level": "Levels",
	"layout": "Layouts", "prelude flags": "Bits of `flags`", "stamp flags": "Bits of `stampFlags`", "position kind": "Kinds of position",
	"subscribe flags": "Bits of `flags`", "open flags": "Bits of `flags`", "features": "Bits of `features`", "partition state": "Values of `state`"}

func valueTable(set string) string {
	return table(func(s *strings.Builder) {
		fmt.Fprintf(s, "%s:\n\n| value | name | meaning |\n|---|---|---|\n", captions[set])
		for _, v := range Values {
			if v.Set != set {
				continue
			}
			value := fmt.Sprint(v.Value)
			if v.Bit {
				value = fmt.Sprintf("0x%02x", v.Value)
			}
			row(s, value, "`"+v.Name+"`", v.Text)
		}
	})
}

func hexLines(b []byte) string {
	return table(func(s *strings.Builder) {
		for pos := 0; pos < len(b); pos += 16 {
			line := b[pos:min(pos+16, len(b))]
			fmt.Fprintf(s, "%04x  %-48s%s\n", pos, strings.TrimSpace(hexText(line[:min(8, len(line))])+" "+hexText(line[min(8, len(line)):])), printableBytes(line))
		}
	})
}

func printableBytes(b []byte) string {
	text := bytes.Clone(b)
	for i, c := range text {
		if c < 0x20 || c > 0x7E {
			text[i] = '.'
		}
	}
	return string(text)
}

// workedCheck computes a frame's check in the steps of the formula.
func workedCheck(b []byte) string {
	n := len(b)
	body, stamped := b[17:n-TailSize], append(bytes.Clone(b[1:17]), b[n-TailSize:n-8]...)
	return table(func(s *strings.Builder) {
		s.WriteString("| step | bytes | xxh64 |\n|---|---|---|\n")
		row(s, fmt.Sprintf("`frame[17:%d]`, %d bytes", n-TailSize, len(body)), fmt.Sprintf("`%x`", body), fmt.Sprintf("`%016x`", xxhash.Sum64(body)))
		row(s, fmt.Sprintf("`frame[1:17] ∥ frame[%d:%d]`, %d bytes", n-TailSize, n-8, len(stamped)), fmt.Sprintf("`%x`", stamped), fmt.Sprintf("`%016x`", xxhash.Sum64(stamped)))
		row(s, "XOR: the check", "", fmt.Sprintf("`%016x`", xxhash.Sum64(body)^xxhash.Sum64(stamped)))
	})
}

func controlTable() string {
	return table(func(s *strings.Builder) {
		for _, c := range Controls {
			switch {
			case c.Opcode == ControlNone:
			case c.Since == 0:
				row(s, uint16(c.Opcode), "`"+c.Name+"`", c.Text+" (kept for a later version)")
			default:
				row(s, uint16(c.Opcode), "`"+c.Name+"`", c.Text)
			}
		}
	})
}

func opcodeTable(served bool) string {
	return table(func(s *strings.Builder) {
		for _, o := range Opcodes {
			if o.Since > 0 != served {
				continue
			}
			cells := []any{fmt.Sprintf("0x%02x", uint16(o.Opcode)), "`" + o.Name + "`", o.Right}
			if served {
				cells = append(cells, linked(o.Args), linked(o.Result))
			}
			row(s, cells...)
		}
	})
}

// linked makes the names of messages in a text links to their sections.
func linked(text string) string {
	if text == "" {
		return "–"
	}
	if m := messageIn(text); m != nil {
		return strings.Replace(text, m.Name, fmt.Sprintf("[%s](#%s)", m.Name, strings.ToLower(m.Name)), 1)
	}
	return text
}

// messageSections writes each message with its fields. A set of values stands behind the first
// message that uses it.
func messageSections() string {
	var s strings.Builder
	seen := map[string]bool{"position kind": true, "level": true, "bool": true, "stop": true}
	for i := range Messages {
		m := &Messages[i]
		fmt.Fprintf(&s, "\n### %s\n\n%s%s.\n\n```\n%s\n```\n\n| field | type | meaning |\n|---|---|---|\n", m.Name, strings.ToUpper(m.Text[:1]), m.Text[1:], m.Layout())
		for _, set := range fieldRows(&s, m.Fields, "") {
			if !seen[set] {
				seen[set] = true
				s.WriteString("\n" + valueTable(set) + "\n")
			}
		}
	}
	return s.String()
}

// pointers are what a field's set of values says where it has no table of its own.
var pointers = map[string]string{"code": "a [code](#errors)", "setting": "a [setting](#topic-settings)", "level": "a [level](#produce)",
	"position kind": "[kind](#positions)", "time": "ns since 1970", "bool": "1 = yes, 0 = no", "open flags": "bits, below", "subscribe flags": "bits, below",
	"partition state": "values below"}

// fieldRows writes the rows of a message's fields and returns the sets of values that they use
// and Values has.
func fieldRows(s *strings.Builder, fields []MessageField, prefix string) (sets []string) {
	for _, f := range fields {
		texts, typ := []string{}, f.Type
		for _, text := range []string{f.Text, pointers[f.Means]} {
			if text != "" {
				texts = append(texts, text)
			}
		}
		switch typ {
		case "list":
			row(s, "`"+prefix+"count`", "u32", strings.Join(append([]string{"how many follow"}, texts...), ", "))
			sets = append(sets, fieldRows(s, f.Items, prefix+f.Name+"[].")...)
			continue
		case "position", "settings":
			typ = fmt.Sprintf("[%s](#%s)", typ, typ)
		}
		if captions[f.Means] != "" {
			sets = append(sets, f.Means)
		}
		row(s, "`"+prefix+f.Name+"`", typ, strings.Join(texts, "; "))
	}
	return sets
}

func errorTable() string {
	return table(func(s *strings.Builder) {
		for _, e := range Errors {
			retry := ""
			if e.Retriable {
				retry = "yes"
			}
			row(s, uint16(e.Code), "`"+e.Name+"`", retry, e.Text)
		}
	})
}

func limitTable() string {
	return table(func(s *strings.Builder) {
		for _, l := range Limits {
			row(s, "`"+l.Name+"`", quantity(l.Value, l.Unit), l.Reason)
		}
	})
}

func settingTable() string {
	return table(func(s *strings.Builder) {
		for _, c := range Settings {
			text := c.Text
			if c.Zero != "" && c.Unit != "level" {
				text += "; 0 = " + c.Zero
			}
			show := func(v uint64) string {
				if c.Unit == "level" {
					return Level(v).String()
				}
				return quantity(v, c.Unit)
			}
			row(s, uint16(c.ID), "`"+c.Name+"`", c.Unit, show(c.Default), show(c.Min), show(c.Max), text)
		}
	})
}

func keyTable() string {
	return table(func(s *strings.Builder) {
		for _, key := range []string{"a", "order-1", "order-2", "ключ"} {
			row(s, "`"+key+"`", fmt.Sprintf("`%016x`", xxhash.Sum64String(key)), PartitionOf([]byte(key), 4), PartitionOf([]byte(key), 7))
		}
	})
}

// quantity writes bytes in the largest binary unit that divides them, and other numbers in
// groups of three.
func quantity(v uint64, unit string) string {
	const day = 24 * 3600 * 1000
	switch {
	case v == 1<<53:
		return "2^53"
	case unit == "ms" && v > 0 && v%day == 0:
		return fmt.Sprintf("%s (%d d)", grouped(v), v/day)
	case unit != "bytes" || v == 0:
		return grouped(v)
	}
	for _, u := range []struct {
		name  string
		shift uint
	}{{"EiB", 60}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}} {
		if v >= 1<<u.shift && v%(1<<u.shift) == 0 {
			return grouped(v>>u.shift) + " " + u.name
		}
	}
	return grouped(v) + " bytes"
}

func grouped(v uint64) string {
	digits := fmt.Sprint(v)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func TestLinksOfTheProtocolDocumentLead(t *testing.T) {
	text := protocolDocument(t)
	headings := map[string]bool{}
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "##") {
			headings[strings.ReplaceAll(strings.ToLower(strings.TrimSpace(title)), " ", "-")] = true
		}
	}
	links := strings.Split(text, "](#")[1:]
	require.NotEmpty(t, links)
	for _, link := range links {
		anchor, _, _ := strings.Cut(link, ")")
		require.True(t, headings[anchor], "#%s leads nowhere", anchor)
	}
}
