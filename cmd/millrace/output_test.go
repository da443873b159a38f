package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func printRows(form outputForm) string {
	var stdout bytes.Buffer
	c := &call{world: world{stdout: &stdout}, output: form}
	out := c.rows("topic", "log_bytes", "tags")
	out.add("orders", byteSize(1_300_000), []string{"a"})
	out.add("a \"b\",\x1b[2J\xff<&>", byteSize(7), nil)
	if err := out.flush(); err != nil {
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
		`{"topic":"a \"b\",\u001b[2J\ufffd<&>","log_bytes":7,"tags":null}`+"\n", printRows(outputJSON))
	require.Equal(t, "topic,log_bytes,tags\n"+
		"orders,1300000,\"[\"\"a\"\"]\"\n"+
		"\"a \"\"b\"\",\x1b[2J\xff<&>\",7,\n", printRows(outputCSV))
}

func TestRowsOfTheWrongWidthPanic(t *testing.T) {
	c := &call{world: world{stdout: io.Discard}}
	require.Panics(t, func() { c.rows("a", "b").add(1) })
}

func TestObjectInEveryForm(t *testing.T) {
	value := struct {
		OK     bool           `json:"ok"`
		Path   string         `json:"path"`
		Counts map[string]int `json:"counts"`
	}{true, "<a>\x07", map[string]int{"x": 1}}
	print := func(form outputForm, text func(io.Writer)) string {
		var stdout bytes.Buffer
		require.NoError(t, (&call{world: world{stdout: &stdout}, output: form}).object(value, text))
		return stdout.String()
	}
	text := func(w io.Writer) { fmt.Fprint(w, "all is well\n") }
	require.Equal(t, "all is well\n", print("", text))
	require.Equal(t, "ok      true\npath    <a>\\u0007\ncounts  {\"x\":1}\n", print("", nil))
	require.Equal(t, `{"ok":true,"path":"<a>\u0007","counts":{"x":1}}`+"\n", print(outputJSON, text))
	require.Equal(t, "ok,path,counts\ntrue,<a>\x07,\"{\"\"x\"\":1}\"\n", print(outputCSV, text))
	require.Error(t, (&call{world: world{stdout: io.Discard}, output: outputCSV}).object(7, nil))
}

// failingWriter fails from the first byte on.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestOutputThatCannotBeWrittenIsAnError(t *testing.T) {
	for _, form := range []outputForm{outputText, outputJSON, outputCSV} {
		c := &call{world: world{stdout: failingWriter{}}, output: form}
		out := c.rows("a")
		out.add("x")
		require.EqualError(t, out.flush(), "disk full", string(form))
		require.EqualError(t, c.object(struct{}{}, func(w io.Writer) { fmt.Fprint(w, "x") }), "disk full")
	}
}

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.00 KiB", 20480: "20.0 KiB", 300 << 20: "300 MiB", 5 << 40: "5.00 TiB"} {
		require.Equal(t, want, humanSize(n))
	}
	for n, want := range map[float64]string{0: "0", 999: "999", 999.7: "1.00k", 12_345: "12.3k", 476_000: "476k", 1_250_000: "1.25M", 3e9: "3.00G"} {
		require.Equal(t, want, humanCount(n))
	}
	require.Equal(t, []string{"a b", "ccc"}, wrap("a b\nccc", 4))
	require.Equal(t, []string{"long-word"}, wrap("long-word", 4))
}
