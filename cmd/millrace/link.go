package main

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/protocol"
)

// link is what a command knows of its connection, and tells people: a line when
// it is lost, one when it is back, and one when the broker refuses messages for a
// reason that may pass.
type link struct {
	// immutable
	c *cli.Call

	// atomic
	refusing atomic.Bool // refusal is set; looked at for every message

	// guarded by mu
	mu      sync.Mutex
	lost    bool
	back    time.Time // when it last came back
	refusal protocol.Code
	since   time.Time // of refusal
}

// settling is how long after the connection came back another failure belongs to
// the same outage: the client has a connection for requests and one for each
// reader, which come back one after the other. It is longer than the client's
// longest pause between two attempts.
const settling = 3 * time.Second

func (l *link) hooks() client.Hooks {
	return client.Hooks{Connected: l.connected, Disconnected: l.disconnected, Refused: l.refused}
}

func (l *link) disconnected(addr string, err error, _ time.Duration) {
	var wire *protocol.Error
	if errors.As(err, &wire) && !errors.Is(err, client.ErrDisconnected) {
		return // an answer: the connection works
	}
	l.mu.Lock()
	tell := !l.lost && l.c.Now().Sub(l.back) >= settling
	l.lost = l.lost || tell
	l.mu.Unlock()
	if tell {
		l.c.Notice("connection to %s lost%s; trying again", addr, reasonOfLoss(err))
	}
}

func (l *link) connected(addr string) {
	l.mu.Lock()
	tell := l.lost
	if tell {
		l.lost, l.back = false, l.c.Now()
	}
	l.mu.Unlock()
	if tell {
		l.c.Notice("connected to %s again", addr)
	}
}

func (l *link) refused(_ string, _ uint32, err error) {
	var wire *protocol.Error
	if !errors.As(err, &wire) || wire.Code == protocol.UnknownHandle {
		return
	}
	l.mu.Lock()
	tell := l.refusal != wire.Code
	if tell {
		l.refusal, l.since = wire.Code, l.c.Now()
		l.refusing.Store(true)
	}
	l.mu.Unlock()
	if tell {
		l.c.Notice("%v; trying again until --timeout (%s)", wire, l.c.Patience())
	}
}

// accepted says that the broker took messages: an earlier refusal is over.
func (l *link) accepted() {
	if !l.refusing.Load() {
		return
	}
	l.mu.Lock()
	l.refusal = protocol.OK
	l.refusing.Store(false)
	l.mu.Unlock()
}

// down tells whether there is no connection.
func (l *link) down() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// refusedSince says for how long the broker has refused messages, "" when it does not.
func (l *link) refusedSince() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusal == protocol.OK {
		return ""
	}
	return l.refusal.Name() + " since " + l.since.Format(time.TimeOnly)
}

// reasonOfLoss says in brackets why a connection ended, where that is short.
func reasonOfLoss(err error) string {
	var errno syscall.Errno
	var network net.Error
	switch {
	case errors.Is(err, protocol.ShuttingDown):
		return " (the broker stops)"
	case errors.As(err, &errno):
		return " (" + errno.Error() + ")"
	case errors.Is(err, io.EOF):
		return " (closed by the broker)"
	case errors.As(err, &network) && network.Timeout():
		return " (no answer in time)"
	}
	return ""
}
