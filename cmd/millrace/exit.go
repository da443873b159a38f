package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/millrace-mq/millrace/broker/config"
	"github.com/millrace-mq/millrace/protocol"
)

// exitCode is how the process ends. Scripts rely on the numbers.
type exitCode int

// The exit codes.
const (
	exitOK          exitCode = 0
	exitRuntime     exitCode = 1
	exitUsage       exitCode = 2
	exitNotFound    exitCode = 3
	exitTimeout     exitCode = 4
	exitUnreachable exitCode = 5
	exitDamage      exitCode = 6
	exitConfig      exitCode = 78
)

// exitCodes explains the codes in help and documents.
var exitCodes = []struct {
	code    exitCode
	meaning string
}{
	{exitOK, "done"},
	{exitRuntime, "failed"},
	{exitUsage, "wrong command, flag or argument"},
	{exitNotFound, "no such topic, partition, key or file"},
	{exitTimeout, "nothing came in time"},
	{exitUnreachable, "no broker at the address"},
	{exitDamage, "damage found in stored data"},
	{exitConfig, "bad configuration"},
}

// exitError is an error that says how the process ends. Without err nothing is
// printed: the command has said what there is to say.
type exitError struct {
	code exitCode
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

// withCode gives err an exit code; a nil err ends the process without a word.
func withCode(code exitCode, err error) error { return &exitError{code, err} }

// usagef is an error of the command line.
func usagef(format string, args ...any) error {
	return withCode(exitUsage, fmt.Errorf(format, args...))
}

// codeOf returns the exit code of an error: its own, or what its cause means.
func codeOf(err error) exitCode {
	var own *exitError
	var problems config.Problems
	var network *net.OpError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &own):
		return own.code
	case errors.As(err, &problems):
		return exitConfig
	case errors.Is(err, protocol.UnknownTopic), errors.Is(err, protocol.UnknownPartition):
		return exitNotFound
	case errors.Is(err, protocol.Corrupt):
		return exitDamage
	case errors.As(err, &network) && network.Op == "dial":
		return exitUnreachable
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, protocol.Timeout):
		return exitTimeout
	}
	return exitRuntime
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
		fmt.Fprintf(w, "millrace: %s\n", strings.TrimSpace(err.Error()))
		return
	}
	table := newTextTable()
	for _, p := range problems {
		setting := p.Key
		if p.Value != "" {
			setting += fmt.Sprintf(" = %q", p.Value)
		}
		table.add([]string{p.Origin.String(), setting, p.Message})
	}
	fmt.Fprint(w, table)
	fmt.Fprintf(w, "millrace: %s in the configuration\n", plural(len(problems), "problem"))
}
