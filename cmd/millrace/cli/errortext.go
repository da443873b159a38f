package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/millrace-mq/millrace/broker/config"
	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/protocol"
)

// errorFacts is an error as -o json prints it on stderr.
type errorFacts struct {
	Error    string         `json:"error"`
	Code     string         `json:"code"` // of the protocol, or what the exit code means
	Exit     ExitCode       `json:"exit"`
	Problems []problemFacts `json:"problems,omitempty"` // of a configuration
}

// problemFacts is one problem of a configuration.
type problemFacts struct {
	Origin  string `json:"origin"`
	Key     string `json:"key,omitempty"`
	Value   string `json:"value,omitempty"`
	Message string `json:"message"`
}

// printError writes an error on stderr: for people, with the problems of a
// configuration as a table, or as one JSON object.
func (c *Call) printError(err error, asJSON bool) {
	var own *exitError
	if errors.As(err, &own) && own.err == nil {
		return
	}
	var problems config.Problems
	isConfig := errors.As(err, &problems)
	facts := errorFacts{Error: errorText(err), Code: codeName(err), Exit: CodeOf(err)}
	if isConfig {
		facts.Error = Plural(len(problems), "problem") + " in the configuration"
	}
	table := NewTextTable()
	for _, p := range problems {
		facts.Problems = append(facts.Problems, problemFacts{p.Origin.String(), p.Key, p.Value, p.Message})
		setting := p.Key
		if p.Value != "" {
			setting += fmt.Sprintf(" = %q", p.Value)
		}
		table.Add([]string{p.Origin.String(), setting, p.Message})
	}
	if asJSON {
		if line, err := MarshalLine(facts); err == nil {
			fmt.Fprintf(c.Stderr, "%s", line)
			return
		}
	}
	fmt.Fprintf(c.Stderr, "%smillrace: %s\n", table, facts.Error)
}

// asksJSON tells whether a command line asks for JSON, also one that cannot be read.
func asksJSON(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		if !joined && i+1 < len(args) {
			value = args[i+1]
		}
		if slices.Contains([]string{"-o", "--o", "-output", "--output"}, name) && value == string(OutputJSON) {
			return true
		}
	}
	return false
}

// codeName is the name of an error for programs.
func codeName(err error) string {
	exit := CodeOf(err)
	var wire *protocol.Error
	var code protocol.Code
	switch {
	case errors.As(err, &wire):
		code = wire.Code
	case errors.Is(err, protocol.UnknownOutcome):
		code = protocol.UnknownOutcome
	case errors.Is(err, protocol.Corrupt):
		code = protocol.Corrupt
	}
	if code != protocol.OK && !(exit == ExitUsage && code == protocol.BadRequest) {
		return code.Name()
	}
	for _, e := range exitCodes {
		if e.code == exit {
			return e.name
		}
	}
	return "FAILED"
}

// errorText is the text of an error for people: one line, each thing said once,
// without the names of packages and of requests. Where a wait was ended by its
// context, the error joins that of the context and that of the read or write
// which was cut short: two texts for one thing. It becomes one that says why.
func errorText(err error) string {
	text := err.Error()
	eachJoin(err, func(joined error, parts []error) {
		if reason := endOfWait(parts); reason != "" {
			text = strings.Replace(text, joined.Error(), reason, 1)
		}
	})
	text = unreachableText(err, text)
	text = packageNames.ReplaceAllString(text, "$1")
	text = strings.ReplaceAll(text, "bench: bench: ", "bench: ")
	text = requestNames.ReplaceAllString(text, "$1")
	text = strings.NewReplacer("HELLO to ", "", "context deadline exceeded", "no answer in time", "context canceled", "interrupted").Replace(text)
	if CodeOf(err) == ExitUsage {
		text = strings.NewReplacer("BAD_REQUEST: ", "", "BAD_NAME: ", "").Replace(text)
	}
	return oneLine(text)
}

// Names that stand in front of a text or of one of its parts.
var (
	packageNames = regexp.MustCompile(`(^|: |; |\n|\(last: |first: )(?:(?:client|broker|storage|vfs|protocol|server): )+`)
	requestNames = regexp.MustCompile(`(^|: |; |\n|\(last: |first: )(?:` + strings.Join(opcodeNames(), "|") + `): `)
	connectingTo = regexp.MustCompile(`(?:client: )?connect to (\S+): `)
)

func opcodeNames() []string {
	var names []string
	for op := range 256 {
		if name := protocol.Opcode(op).String(); !strings.HasPrefix(name, "OPCODE_") {
			names = append(names, regexp.QuoteMeta(name))
		}
	}
	return names
}

// unreachableText is text where its end, a connection that could not be made,
// says what to do.
func unreachableText(err error, text string) string {
	var dial *net.OpError
	var undelivered *client.UndeliveredError
	var delivery *client.DeliveryError
	if !errors.As(err, &dial) || dial.Op != "dial" || errors.As(err, &delivery) || errors.As(err, &undelivered) || errors.Is(err, context.Canceled) {
		return text
	}
	at := connectingTo.FindStringSubmatchIndex(text)
	if at == nil {
		return text
	}
	reason := dial.Err.Error()
	var errno syscall.Errno
	var name *net.DNSError
	switch {
	case errors.As(err, &errno):
		reason = errno.Error()
	case errors.As(err, &name):
		reason = name.Err
	case dial.Timeout():
		reason = "no answer in time"
	}
	return fmt.Sprintf("%sno broker at %s (%s); start one with millrace dev, or name another with --addr or MILLRACE_ADDR", text[:at[0]], text[at[2]:at[3]], reason)
}

// oneLine joins the lines of a text; one that another one contains is left out.
func oneLine(text string) string {
	var kept []string
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		line = strings.TrimSpace(line)
		if line != "" && !slices.ContainsFunc(kept, func(k string) bool { return strings.Contains(k, line) }) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "; ")
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
