package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"sync"
	"time"
)

// isScreen tells whether a stream of the command is a terminal.
func isScreen(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isDevice(f)
}

// lazyWriter is a buffered writer that does not keep what it was given for longer
// than flushAfter, so that whoever follows a stream sees it.
type lazyWriter struct {
	mu    sync.Mutex
	out   *bufio.Writer // guarded by mu, and so are the others
	armed bool          // a flush will come
	err   error         // the first one
	timer *time.Timer
}

const flushAfter = 20 * time.Millisecond

func newLazyWriter(w io.Writer) *lazyWriter {
	return &lazyWriter{out: bufio.NewWriterSize(w, 64<<10)}
}

// Write takes p.
//
// Errors: the first of all writes and flushes.
func (l *lazyWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return 0, l.err
	}
	n, err := l.out.Write(p)
	l.err = err
	if !l.armed {
		l.armed = true
		if l.timer == nil {
			l.timer = time.AfterFunc(flushAfter, l.late)
		} else {
			l.timer.Reset(flushAfter)
		}
	}
	return n, err
}

// late flushes what was not flushed by being too much.
func (l *lazyWriter) late() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = false
	if l.err == nil {
		l.err = l.out.Flush()
	}
}

// flush writes everything and returns the first error of all.
func (l *lazyWriter) flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = l.out.Flush()
	}
	return l.err
}

// pollEvery is how often a read that waits looks whether the command was
// interrupted, in milliseconds.
const pollEvery = 200

// interruptible reads from a file and gives up when ctx ends.
type interruptible struct {
	ctx context.Context
	f   *os.File
}

// Read waits for something to read.
//
// Errors: the context's.
func (r interruptible) Read(p []byte) (int, error) {
	for {
		if err := r.ctx.Err(); err != nil {
			return 0, err
		}
		ready, err := readable(r.f, pollEvery)
		if err != nil {
			return 0, err
		}
		if ready {
			return r.f.Read(p)
		}
	}
}

// input is standard input, which ends with the context where that is possible.
func (c *call) input(ctx context.Context) io.Reader {
	if f, ok := c.stdin.(*os.File); ok {
		return interruptible{ctx, f}
	}
	return c.stdin
}
