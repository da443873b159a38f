package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/millrace-mq/millrace/broker/config"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
)

// newLog makes the log of a broker on stderr. While it starts, what the log
// says about single partitions goes to notes as well, and with banner only there.
func newLog(c *cli.Call, cfg *config.Config, notes *recoveryNotes, banner bool) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Log.Level)); err != nil {
		panic("millrace: log.level was not checked: " + err.Error())
	}
	o := &slog.HandlerOptions{Level: level}
	var h slog.Handler
	if cfg.Log.Format == "text" || cfg.Log.Format == "auto" && c.Terminal {
		h = slog.NewTextHandler(c.Stderr, o)
	} else {
		h = slog.NewJSONHandler(c.Stderr, o)
	}
	return slog.New(&recoveryHandler{next: h, notes: notes, only: banner})
}

// recoveryNotes are lines about partitions that were not simply opened.
type recoveryNotes struct {
	mu    sync.Mutex
	lines []string // guarded by mu, and so is over
	over  bool     // the start is done
}

// mostNotes bounds the lines of a banner; the log has the others.
const mostNotes = 20

// add keeps a line; false when it must go to the log.
func (n *recoveryNotes) add(line string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over || len(n.lines) == mostNotes {
		return false
	}
	n.lines = append(n.lines, line)
	return true
}

// end closes the notes and returns their lines.
func (n *recoveryNotes) end() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = true
	return n.lines
}

// recoveryHandler hands log records on, and those about topics during the
// start to the notes.
type recoveryHandler struct {
	next  slog.Handler
	notes *recoveryNotes
	only  bool        // a note is not logged
	attrs []slog.Attr // of the logger, for the notes
}

// Enabled asks the handler behind.
func (h *recoveryHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle takes one record.
func (h *recoveryHandler) Handle(ctx context.Context, r slog.Record) error {
	if line := noteOf(h.attrs, r); line != "" && h.notes.add(line) && h.only {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs returns the handler of a logger with more attributes.
func (h *recoveryHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &recoveryHandler{h.next.WithAttrs(attrs), h.notes, h.only, append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)}
}

// WithGroup returns the handler of a logger with a group.
func (h *recoveryHandler) WithGroup(name string) slog.Handler {
	return &recoveryHandler{h.next.WithGroup(name), h.notes, h.only, h.attrs}
}

// noteOf writes a record about a topic as "orders/3: message key=value"; what
// recovery has found stands in place of the message. Empty for a record about
// something else.
func noteOf(attrs []slog.Attr, r slog.Record) string {
	place, partition, message, rest := "", "", r.Message, ""
	take := func(a slog.Attr) bool {
		switch a.Key {
		case "topic":
			place = a.Value.String()
		case "partition":
			partition = "/" + a.Value.String()
		case "found":
			message = a.Value.String()
		default:
			rest += fmt.Sprintf(" %s=%s", a.Key, a.Value)
		}
		return true
	}
	for _, a := range attrs {
		take(a)
	}
	r.Attrs(take)
	if place == "" {
		return ""
	}
	return cli.Printable(place + partition + ": " + strings.TrimSpace(message+rest))
}
