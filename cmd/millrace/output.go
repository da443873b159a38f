package main

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

// outputForm is the flag -o.
type outputForm string

const (
	outputText outputForm = "text"
	outputJSON outputForm = "json"
	outputCSV  outputForm = "csv"
)

// Set takes text, json or csv.
func (o *outputForm) Set(text string) error {
	switch f := outputForm(text); f {
	case outputText, outputJSON, outputCSV:
		*o = f
		return nil
	}
	forms := []string{string(outputText), string(outputJSON), string(outputCSV)}
	return fmt.Errorf("not one of %s%s", strings.Join(forms, ", "), suggestion(text, forms, ""))
}

// String returns the form; text where none was given.
func (o *outputForm) String() string {
	if o == nil || *o == "" {
		return string(outputText)
	}
	return string(*o)
}

// texter is a value that people read in another form than programs.
type texter interface{ text() string }

// rowPrinter prints rows of the same columns: a table, JSON lines or CSV.
// Text is kept until flush for the width of the columns; the others stream.
type rowPrinter struct {
	form    outputForm
	columns []string
	out     *bufio.Writer
	csv     *csv.Writer
	table   *textTable
	err     error // first error; later rows are not printed
}

// rows begins to print rows on stdout. The columns are the JSON names, in
// lower case; text shows them in upper case.
func (c *call) rows(columns ...string) *rowPrinter {
	r := &rowPrinter{form: c.output, columns: columns, out: bufio.NewWriter(c.stdout)}
	switch c.output {
	case outputJSON:
	case outputCSV:
		r.csv = csv.NewWriter(r.out)
		r.err = r.csv.Write(columns)
	default:
		r.table = newTextTable()
		head := make([]string, len(columns))
		for i, column := range columns {
			head[i] = strings.ToUpper(strings.ReplaceAll(column, "_", " "))
		}
		r.table.add(head)
	}
	return r
}

// add prints one row: a value for each column.
func (r *rowPrinter) add(values ...any) {
	if len(values) != len(r.columns) {
		panic(fmt.Sprintf("millrace: %d values for %d columns", len(values), len(r.columns)))
	}
	if r.err != nil {
		return
	}
	switch r.form {
	case outputJSON:
		r.err = writeJSONRow(r.out, r.columns, values)
	case outputCSV:
		cells := make([]string, len(values))
		for i, v := range values {
			cells[i] = machineCell(v)
		}
		r.err = r.csv.Write(cells)
	default:
		cells := make([]string, len(values))
		for i, v := range values {
			cells[i] = textCell(v)
		}
		r.table.add(cells)
	}
}

// flush prints what is left and returns the first error of all.
func (r *rowPrinter) flush() error {
	if r.err != nil {
		return r.err
	}
	switch {
	case r.csv != nil:
		r.csv.Flush()
		if err := r.csv.Error(); err != nil {
			return err
		}
	case r.table != nil:
		if _, err := io.WriteString(r.out, r.table.String()); err != nil {
			return err
		}
	}
	return r.out.Flush()
}

// object prints one value: as one line of JSON, as a CSV head and row of its
// top-level fields, or as text writes it. Without text, people get a line for
// each field.
func (c *call) object(v any, text func(w io.Writer)) error {
	if c.output != outputJSON && (c.output == outputCSV || text == nil) {
		return c.fields(v)
	}
	out := bufio.NewWriter(c.stdout)
	if c.output == outputJSON {
		line, err := marshalLine(v)
		if err != nil {
			return err
		}
		if _, err := out.Write(line); err != nil {
			return err
		}
		return out.Flush()
	}
	text(out)
	return out.Flush()
}

// fields prints the top-level fields of a JSON object in their order.
func (c *call) fields(v any) error {
	names, values, err := objectFields(v)
	if err != nil {
		return err
	}
	if c.output == outputCSV {
		r := c.rows(names...)
		r.add(values...)
		return r.flush()
	}
	table := newTextTable()
	for i, name := range names {
		table.add([]string{strings.ReplaceAll(name, "_", " "), textCell(values[i])})
	}
	_, err = io.WriteString(c.stdout, table.String())
	return err
}

// objectFields splits what v marshals to into names and values in order;
// strings lose their quotes, everything else stays JSON.
func objectFields(v any) (names []string, values []any, err error) {
	line, err := marshalLine(v)
	if err != nil {
		return nil, nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	if first, err := decoder.Token(); err != nil || first != json.Delim('{') {
		return nil, nil, fmt.Errorf("%T does not marshal to an object", v)
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, nil, err
		}
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return nil, nil, err
		}
		var text string
		if json.Unmarshal(raw, &text) != nil {
			text = string(raw)
		}
		names, values = append(names, fmt.Sprint(name)), append(values, text)
	}
	return names, values, nil
}

// marshalLine is json.Marshal with a line end and with < > & as they are.
func marshalLine(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return b.Bytes(), err
}

func writeJSONRow(w *bufio.Writer, columns []string, values []any) error {
	line := []byte("{")
	for i, v := range values {
		name, err := marshalLine(columns[i])
		if err != nil {
			return err
		}
		value, err := marshalLine(v)
		if err != nil {
			return err
		}
		if i > 0 {
			line = append(line, ',')
		}
		line = append(append(line, bytes.TrimSuffix(name, []byte("\n"))...), ':')
		line = append(line, bytes.TrimSuffix(value, []byte("\n"))...)
	}
	_, err := w.Write(append(line, "}\n"...))
	return err
}

// textCell shows a value to people. Control characters are escaped: a name or
// a payload must not be able to command the terminal.
func textCell(v any) string {
	if t, ok := v.(texter); ok {
		return t.text()
	}
	return printable(machineCell(v))
}

// machineCell is a CSV cell: plain for what is plain, else JSON.
func machineCell(v any) string {
	if v == nil {
		return ""
	}
	switch reflect.TypeOf(v).Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return fmt.Sprint(reflect.ValueOf(v))
	}
	line, err := marshalLine(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(string(line), "\n")
}

// printable escapes what a terminal would act on.
func printable(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) < 0 {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size <= 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += size
	}
	return b.String()
}
