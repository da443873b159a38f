package config

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFileForms(t *testing.T) {
	for name, test := range map[string]struct {
		line, key, value string
		bad              bool
	}{
		"blank":             {line: "  \t "},
		"comment":           {line: " # a = b"},
		"plain":             {line: "a.b = c d", key: "a.b", value: "c d"},
		"no spaces":         {line: "a=b", key: "a", value: "b"},
		"comment after":     {line: "a = b # c", key: "a", value: "b"},
		"hash inside":       {line: "a = b#c", key: "a", value: "b#c"},
		"only comment":      {line: "a = # c", key: "a"},
		"equals inside":     {line: "a = b=c", key: "a", value: "b=c"},
		"quoted":            {line: `a = " # \" "`, key: "a", value: ` # " `},
		"quoted and note":   {line: `a = "x" # note`, key: "a", value: "x"},
		"quoted and more":   {line: `a = "x" y`, bad: true},
		"quote not closed":  {line: `a = "x`, bad: true},
		"section":           {line: "[a]", bad: true},
		"no equals":         {line: "a b", bad: true},
		"upper-case key":    {line: "A = b", bad: true},
		"no key":            {line: " = b", bad: true},
		"not UTF-8":         {line: "a = \xff", bad: true},
		"key with a string": {line: "a\"b = c", bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			key, value, problem := parseLine(test.line)
			require.Equal(t, test.bad, problem != "", problem)
			if !test.bad {
				require.Equal(t, [2]string{test.key, test.value}, [2]string{key, value})
			}
		})
	}
}

func TestFileTakesWindowsLinesAndByteOrderMark(t *testing.T) {
	var problems Problems
	entries := parseFile("f", []byte("\xef\xbb\xbfa = 1\r\nb = 2\r\n"), &problems)
	require.Empty(t, problems)
	require.Len(t, entries, 2)
	require.Equal(t, "1", entries[0].value)
	require.Equal(t, Origin{Source: SourceFile, Name: "f", Line: 2}, entries[1].origin)
}

// FuzzFile: no text makes the parser fail, and what it reads is read the same
// when written again.
func FuzzFile(f *testing.F) {
	f.Add([]byte("storage.data_dir = /x # y\nlog.level = \"info\"\n"))
	f.Add([]byte("topic.retention = 7d\n#topic.retention_bytes = 0\nauto_create = logs.*,a # b"))
	f.Add([]byte("[a]\r\n= \n\"\nx = \"\\x00\"\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var problems Problems
		entries := parseFile("f", text, &problems)
		require.LessOrEqual(t, len(problems), maxProblems)
		var again []byte
		for _, e := range entries {
			again = append(again, e.key+" = "+strconv.Quote(e.value)+"\n"...)
		}
		var none Problems
		if len(again) > MaxFileBytes { // quoting made it longer
			return
		}
		reread := parseFile("f", again, &none)
		require.Empty(t, none)
		require.Len(t, reread, len(entries))
		for i := range entries {
			require.Equal(t, entries[i].key, reread[i].key)
			require.Equal(t, entries[i].value, reread[i].value)
		}
		if c, err := Load(Sources{File: "f", Text: text}); err == nil {
			require.NotNil(t, c)
		} else {
			require.NotEmpty(t, err.Error())
		}
	})
}
