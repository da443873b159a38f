package cli

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/millrace-mq/millrace/broker/config"
	"github.com/millrace-mq/millrace/client"
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

// exitCodes explains the codes in help and documents, and names them for programs.
var exitCodes = []struct {
	code    ExitCode
	name    string
	meaning string
}{
	{ExitOK, "OK", "done"},
	{ExitRuntime, "FAILED", "failed"},
	{ExitUsage, "USAGE", "wrong command, flag, argument, topic name or address"},
	{ExitNotFound, "NOT_FOUND", "no such topic or partition, no file to read at the name"},
	{ExitTimeout, "TIMEOUT", "nothing came in time"},
	{ExitUnreachable, "UNREACHABLE", "no broker at the address"},
	{ExitDamage, "DAMAGE", "damage found in stored data"},
	{ExitConfig, "CONFIG", "bad configuration"},
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
	case errors.Is(err, client.ErrAddr), errors.Is(err, protocol.BadName):
		return ExitUsage
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
