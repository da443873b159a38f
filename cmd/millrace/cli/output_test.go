package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func printRows(form OutputForm) string {
	var stdout bytes.Buffer
	c := &Call{World: World{Stdout: &stdout}, Output: form}
	out := c.Rows("topic", "log_bytes", "tags")
	out.Add("orders", ByteSize(1_300_000), []string{"a"})
	out.Add("a \"b\",\x1b[2J\xff<&>", ByteSize(7), nil)
	if err := out.Flush(); err != nil {
		return err.Error()
	}
	return stdout.String()
}

func TestRowsInEveryForm(t *testing.T) {
	require.Equal(t, ""+
		"TOPIC                   LOG BYTES  TAGS\n"+
		"orders                   1.24 MiB  [\"a\"]\n"+
		"a \"b\",\\u001b[2J\\xff<&>        7 B\n", printRows(""))
	require.Equal(t, `{"topic":"orders","log_bytes":1300000,"tags":["a"]}`+"\n"+
		`{"topic":"a \"b\",\u001b[2J\ufffd<&>","log_bytes":7,"tags":null}`+"\n", printRows(OutputJSON))
	require.Equal(t, "topic,log_bytes,tags\n"+
		"orders,1300000,\"[\"\"a\"\"]\"\n"+
		"\"a \"\"b\"\",\x1b[2J\xff<&>\",7,\n", printRows(OutputCSV))
}

func TestRowsOfTheWrongWidthPanic(t *testing.T) {
	c := &Call{World: World{Stdout: io.Discard}}
	require.Panics(t, func() { c.Rows("a", "b").Add(1) })
}

func TestObjectInEveryForm(t *testing.T) {
	value := struct {
		OK     bool           `json:"ok"`
		Path   string         `json:"path"`
		Counts map[string]int `json:"counts"`
	}{true, "<a>\x07", map[string]int{"x": 1}}
	print := func(form OutputForm, text func(io.Writer)) string {
		var stdout bytes.Buffer
		require.NoError(t, (&Call{World: World{Stdout: &stdout}, Output: form}).Object(value, text))
		return stdout.String()
	}
	text := func(w io.Writer) { fmt.Fprint(w, "all is well\n") }
	require.Equal(t, "all is well\n", print("", text))
	require.Equal(t, "ok      true\npath    <a>\\u0007\ncounts  {\"x\":1}\n", print("", nil))
	require.Equal(t, `{"ok":true,"path":"<a>\u0007","counts":{"x":1}}`+"\n", print(OutputJSON, text))
	require.Equal(t, "ok,path,counts\ntrue,<a>\x07,\"{\"\"x\"\":1}\"\n", print(OutputCSV, text))
	require.Error(t, (&Call{World: World{Stdout: io.Discard}, Output: OutputCSV}).Object(7, nil))
}

// failingWriter fails from the first byte on.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestOutputThatCannotBeWrittenIsAnError(t *testing.T) {
	for _, form := range []OutputForm{OutputText, OutputJSON, OutputCSV} {
		c := &Call{World: World{Stdout: failingWriter{}}, Output: form}
		out := c.Rows("a")
		out.Add("x")
		require.EqualError(t, out.Flush(), "disk full", string(form))
		require.EqualError(t, c.Object(struct{}{}, func(w io.Writer) { fmt.Fprint(w, "x") }), "disk full")
	}
}

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.00 KiB", 20480: "20.0 KiB", 300 << 20: "300 MiB", 5 << 40: "5.00 TiB"} {
		require.Equal(t, want, HumanSize(n))
	}
	for n, want := range map[float64]string{0: "0", 999: "999", 999.7: "1.00k", 12_345: "12.3k", 476_000: "476k", 1_250_000: "1.25M", 3e9: "3.00G"} {
		require.Equal(t, want, HumanCount(n))
	}
	require.Equal(t, []string{"a b", "ccc"}, Wrap("a b\nccc", 4))
	require.Equal(t, []string{"long-word"}, Wrap("long-word", 4))
}
