package cli

import (
	"bufio"
	"context"
	"io"
	"os"
	"sync"
	"time"
)

// LazyWriter is a buffered writer that does not keep what it was given for longer
// than flushAfter, so that whoever follows a stream sees it.
type LazyWriter struct {
	mu    sync.Mutex
	out   *bufio.Writer // guarded by mu, and so are the others
	armed bool          // a flush will come
	err   error         // the first one
	timer *time.Timer
}

const flushAfter = 20 * time.Millisecond

// NewLazyWriter returns a writer to w.
func NewLazyWriter(w io.Writer) *LazyWriter {
	return &LazyWriter{out: bufio.NewWriterSize(w, 64<<10)}
}

// Write takes p.
//
// Errors: the first of all writes and flushes.
func (l *LazyWriter) Write(p []byte) (int, error) {
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
func (l *LazyWriter) late() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = false
	if l.err == nil {
		l.err = l.out.Flush()
	}
}

// Flush writes everything and returns the first error of all.
func (l *LazyWriter) Flush() error {
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

// Input is standard input, which ends with the context where that is possible.
func (c *Call) Input(ctx context.Context) io.Reader {
	if f, ok := c.Stdin.(*os.File); ok {
		return interruptible{ctx, f}
	}
	return c.Stdin
}
