package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/millrace-mq/millrace/broker/config"
	"github.com/millrace-mq/millrace/protocol"
)

// ExitCode is how the process ends. Scripts rely on the numbers.
type ExitCode int

// The exit codes.
const (
	ExitOK          ExitCode = 0
	ExitRuntime     ExitCode = 1
	ExitUsage       ExitCode = 2
	ExitNotFound    ExitCode = 3
	ExitTimeout     ExitCode = 4
	ExitUnreachable ExitCode = 5
	ExitDamage      ExitCode = 6
	ExitConfig      ExitCode = 78
)

// exitCodes explains the codes in help and documents.
var exitCodes = []struct {
	code    ExitCode
	meaning string
}{
	{ExitOK, "done"},
	{ExitRuntime, "failed"},
	{ExitUsage, "wrong command, flag or argument"},
	{ExitNotFound, "no such topic, partition, key or file"},
	{ExitTimeout, "nothing came in time"},
	{ExitUnreachable, "no broker at the address"},
	{ExitDamage, "damage found in stored data"},
	{ExitConfig, "bad configuration"},
}

// exitError is an error that says how the process ends. Without err nothing is
// printed: the command has said what there is to say.
type exitError struct {
	code ExitCode
	err  error
}

// Error returns the text of the error inside.
func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Unwrap returns the error inside.
func (e *exitError) Unwrap() error { return e.err }

// WithCode gives err an exit code; with a nil err the process ends so without a
// word, because the command has said everything.
func WithCode(code ExitCode, err error) error { return &exitError{code, err} }

// Usagef is an error of the command line: exit code 2.
func Usagef(format string, args ...any) error {
	return WithCode(ExitUsage, fmt.Errorf(format, args...))
}

// CodeOf returns the exit code of an error: its own, or what its cause means.
func CodeOf(err error) ExitCode {
	var own *exitError
	var problems config.Problems
	var network *net.OpError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &own):
		return own.code
	case errors.As(err, &problems):
		return ExitConfig
	case errors.Is(err, protocol.UnknownTopic), errors.Is(err, protocol.UnknownPartition):
		return ExitNotFound
	case errors.Is(err, protocol.Corrupt):
		return ExitDamage
	case errors.As(err, &network) && network.Op == "dial":
		return ExitUnreachable
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, protocol.Timeout):
		return ExitTimeout
	}
	return ExitRuntime
}

// printError writes an error for people; the problems of a configuration as a
// table of origin, setting and what is wrong.
func printError(w io.Writer, err error) {
	var own *exitError
	if errors.As(err, &own) && own.err == nil {
		return
	}
	var problems config.Problems
	if !errors.As(err, &problems) {
		fmt.Fprintf(w, "millrace: %s\n", errorText(err))
		return
	}
	table := NewTextTable()
	for _, p := range problems {
		setting := p.Key
		if p.Value != "" {
			setting += fmt.Sprintf(" = %q", p.Value)
		}
		table.Add([]string{p.Origin.String(), setting, p.Message})
	}
	fmt.Fprint(w, table)
	fmt.Fprintf(w, "millrace: %s in the configuration\n", Plural(len(problems), "problem"))
}

// errorText is the text of an error for people. Where a wait was ended by its
// context, the error joins that of the context and that of the read or write
// which was cut short: two lines for one thing. It becomes one that says why.
func errorText(err error) string {
	text := err.Error()
	eachJoin(err, func(joined error, parts []error) {
		if reason := endOfWait(parts); reason != "" {
			text = strings.Replace(text, joined.Error(), reason, 1)
		}
	})
	return strings.TrimSpace(text)
}

// eachJoin visits the errors of errors.Join in the tree of err that have several parts.
func eachJoin(err error, visit func(joined error, parts []error)) {
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		eachJoin(e.Unwrap(), visit)
	case interface{ Unwrap() []error }:
		parts := e.Unwrap()
		var lines []string
		for _, part := range parts {
			lines = append(lines, part.Error())
			eachJoin(part, visit)
		}
		if len(parts) > 1 && err.Error() == strings.Join(lines, "\n") {
			visit(err, parts)
		}
	}
}

// endOfWait says in one line why a wait ended; empty when no part is a context's error.
func endOfWait(parts []error) string {
	ended, lines := false, []string(nil)
	for _, part := range parts {
		switch {
		case part == context.DeadlineExceeded:
			ended, lines = true, append(lines, "no answer in time")
		case part == context.Canceled:
			ended, lines = true, append(lines, "interrupted")
		case errors.Is(part, os.ErrDeadlineExceeded): // a consequence
		default:
			lines = append(lines, part.Error())
		}
	}
	if !ended {
		return ""
	}
	return strings.Join(lines, "; ")
}
