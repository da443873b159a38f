package cli

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

// OutputForm is the flag -o.
type OutputForm string

// The forms of output.
const (
	OutputText OutputForm = "text"
	OutputJSON OutputForm = "json"
	OutputCSV  OutputForm = "csv"
)

// Set takes text, json or csv.
func (o *OutputForm) Set(text string) error {
	switch f := OutputForm(text); f {
	case OutputText, OutputJSON, OutputCSV:
		*o = f
		return nil
	}
	forms := []string{string(OutputText), string(OutputJSON), string(OutputCSV)}
	return fmt.Errorf("not one of %s%s", strings.Join(forms, ", "), Suggestion(text, forms, ""))
}

// String returns the form; text where none was given.
func (o *OutputForm) String() string {
	if o == nil || *o == "" {
		return string(OutputText)
	}
	return string(*o)
}

// Texter is a value of a row that people read in another form than programs,
// which get what it marshals to.
type Texter interface{ Text() string }

// RowPrinter prints rows of the same columns: a table, JSON lines or CSV.
// Text is kept until Flush for the width of the columns; the others stream.
type RowPrinter struct {
	form    OutputForm
	columns []string
	out     *bufio.Writer
	csv     *csv.Writer
	table   *TextTable
	err     error // first error; later rows are not printed
}

// Rows begins to print rows on stdout. The columns are the JSON names, in
// lower case; text shows them in upper case.
func (c *Call) Rows(columns ...string) *RowPrinter {
	r := &RowPrinter{form: c.Output, columns: columns, out: bufio.NewWriter(c.Stdout)}
	switch c.Output {
	case OutputJSON:
	case OutputCSV:
		r.csv = csv.NewWriter(r.out)
		r.err = r.csv.Write(columns)
	default:
		r.table = NewTextTable()
		head := make([]string, len(columns))
		for i, column := range columns {
			head[i] = strings.ToUpper(strings.ReplaceAll(column, "_", " "))
		}
		r.table.Add(head)
	}
	return r
}

// Add prints one row: a value for each column.
func (r *RowPrinter) Add(values ...any) {
	if len(values) != len(r.columns) {
		panic(fmt.Sprintf("cli: %d values for %d columns", len(values), len(r.columns)))
	}
	if r.err != nil {
		return
	}
	switch r.form {
	case OutputJSON:
		r.err = writeJSONRow(r.out, r.columns, values)
	case OutputCSV:
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
		r.table.Add(cells)
	}
}

// Err returns the first error so far, after which nothing is printed.
func (r *RowPrinter) Err() error { return r.err }

// Flush prints what is left and returns the first error of all.
func (r *RowPrinter) Flush() error {
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

// Object prints one value: as one line of JSON, as a CSV head and row of its
// top-level fields, or as text writes it. Without text, people get a line for
// each field.
func (c *Call) Object(v any, text func(w io.Writer)) error {
	if c.Output != OutputJSON && (c.Output == OutputCSV || text == nil) {
		return c.fields(v)
	}
	out := bufio.NewWriter(c.Stdout)
	if c.Output == OutputJSON {
		line, err := MarshalLine(v)
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
func (c *Call) fields(v any) error {
	names, values, err := objectFields(v)
	if err != nil {
		return err
	}
	if c.Output == OutputCSV {
		r := c.Rows(names...)
		r.Add(values...)
		return r.Flush()
	}
	table := NewTextTable()
	for i, name := range names {
		table.Add([]string{strings.ReplaceAll(name, "_", " "), textCell(values[i])})
	}
	_, err = io.WriteString(c.Stdout, table.String())
	return err
}

// objectFields splits what v marshals to into names and values in order;
// strings lose their quotes, everything else stays JSON.
func objectFields(v any) (names []string, values []any, err error) {
	line, err := MarshalLine(v)
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

// MarshalLine is json.Marshal with a line end and with < > & as they are.
func MarshalLine(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return b.Bytes(), err
}

func writeJSONRow(w *bufio.Writer, columns []string, values []any) error {
	line := []byte("{")
	for i, v := range values {
		name, err := MarshalLine(columns[i])
		if err != nil {
			return err
		}
		value, err := MarshalLine(v)
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
	if t, ok := v.(Texter); ok {
		return t.Text()
	}
	return Printable(machineCell(v))
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
	line, err := MarshalLine(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(string(line), "\n")
}

// Printable escapes what a terminal would act on.
func Printable(text string) string {
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
