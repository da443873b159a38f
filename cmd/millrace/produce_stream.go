package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/protocol"
)

// stream sends many messages without waiting for each.
type stream struct {
	// immutable
	c        *cli.Call
	o        *produceOptions
	client   *client.Client
	producer *client.Producer
	link     *link
	progress *cli.Progress

	// owned by run
	given   int64 // lines or values so far
	readAll bool  // there are no more

	// guarded by mu: callbacks come on the producer's goroutine
	mu     sync.Mutex
	acked  int64
	bytes  int64
	failed int64
	first  error            // of the first that failed
	at     int64            // its number among lines or values, from 1
	errors map[string]int64 // failed messages by code
}

// streamFacts is the result of a stream.
type streamFacts struct {
	Records int64            `json:"records"` // acknowledged
	Failed  int64            `json:"failed"`
	Bytes   int64            `json:"bytes"` // of acknowledged values
	Seconds float64          `json:"seconds"`
	Rate    float64          `json:"rate"`             // records a second
	Errors  map[string]int64 `json:"errors,omitempty"` // failed messages by code
}

// run sends values, or lines of standard input, and waits for the last answer.
func (s *stream) run(ctx context.Context, values [][]byte, lines bool) error {
	began := s.c.Now()
	total := int64(len(values)) * s.o.count
	s.errors = map[string]int64{}
	s.progress = s.c.StartProgress("produce", "records", total)
	defer s.progress.Finish()
	var err error
	if lines {
		err = eachLine(s.c.Input(ctx), func(line []byte) error { return s.send(ctx, line) })
	} else {
		for i := 0; i < len(values) && err == nil; i++ {
			err = s.send(ctx, values[i])
		}
	}
	s.readAll = err == nil
	end, cancel := s.c.Deadline(context.WithoutCancel(ctx)) // what was given is seen through
	defer cancel()
	cerr := s.producer.Close(end)
	s.progress.Finish()
	s.mu.Lock()
	defer s.mu.Unlock()
	facts := streamFacts{Records: s.acked, Failed: s.failed, Bytes: s.bytes, Seconds: s.c.Now().Sub(began).Seconds(), Errors: s.errors}
	if facts.Seconds > 0 {
		facts.Rate = float64(s.acked) / facts.Seconds
	}
	if perr := s.report(facts); perr != nil {
		return perr
	}
	switch {
	case s.first != nil:
		return s.stopped(s.at, lines, withRefusal(advise(ctx, s.c, s.client, s.c.Args[0], s.first), s.link))
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted after %s", cli.Plural(int(s.acked), "message"))
	case err != nil:
		return s.stopped(s.given+1, lines, errors.Join(err, cerr))
	}
	return cerr
}

// stopped says where a stream ended that did not come to its end. With mu.
func (s *stream) stopped(at int64, lines bool, err error) error {
	place := fmt.Sprintf("message %d", at)
	if lines {
		place = fmt.Sprintf("line %d of standard input", at)
	}
	rest := ""
	if !s.readAll {
		rest = ", and the rest was not sent"
		if lines {
			rest = ", and the input was not read to its end"
		}
	}
	return fmt.Errorf("stopped at %s: %s acknowledged, %d failed%s: %w", place, cli.Plural(int(s.acked), "message"), s.failed, rest, err)
}

// report prints the result: for people on stderr, so that stdout stays empty.
func (s *stream) report(facts streamFacts) error {
	switch s.c.Output {
	case cli.OutputCSV: // one row, with the columns it always had
		facts.Errors = nil
		return s.c.Object(facts, nil)
	case cli.OutputJSON:
		return s.c.Object(facts, nil)
	}
	failed := fmt.Sprintf("%d failed", facts.Failed)
	if len(facts.Errors) > 0 {
		var counts []string
		for _, code := range slices.Sorted(maps.Keys(facts.Errors)) {
			counts = append(counts, fmt.Sprintf("%d %s", facts.Errors[code], code))
		}
		failed += " (" + strings.Join(counts, ", ") + ")"
	}
	s.c.Notice("%s acknowledged, %s, %s, %s, %s/s", cli.Plural(int(facts.Records), "record"), failed,
		cli.HumanSize(facts.Bytes), cli.HumanSeconds(facts.Seconds), cli.HumanCount(facts.Rate))
	return nil
}

// send gives a message to the producer as often as --count says, which waits
// while its buffer is full.
//
// Errors: also that an earlier message failed.
func (s *stream) send(ctx context.Context, value []byte) error {
	if err := errors.Join(ctx.Err(), s.failure()); err != nil {
		return err
	}
	m := s.o.message(s.c.Args[0], value)
	s.given++
	size, at := int64(len(m.Value)), s.given
	done := func(_ client.Ack, err error) { s.settled(size, at, err) }
	for range s.o.count {
		if err := errors.Join(ctx.Err(), s.failure()); err != nil {
			return err
		}
		if err := s.producer.Async(m, done); err != nil {
			s.settled(size, at, err)
			return err
		}
	}
	return nil
}

// settled is told what became of a message, the number at of what was given.
func (s *stream) settled(size, at int64, err error) {
	if err == nil {
		s.link.accepted()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed++
		s.errors[errorName(err)]++
		if s.first == nil || at < s.at {
			s.first, s.at = err, at
		}
		return
	}
	s.acked++
	s.bytes += size
	s.progress.Add(1)
}

// failure is the error of the first message that failed.
func (s *stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first
}

// errorName is the code of an error for a summary.
func errorName(err error) string {
	var wire *protocol.Error
	switch {
	case errors.Is(err, protocol.UnknownOutcome):
		return protocol.UnknownOutcome.Name()
	case errors.Is(err, protocol.Timeout):
		return protocol.Timeout.Name()
	case errors.As(err, &wire):
		return wire.Code.Name()
	}
	return "other"
}
