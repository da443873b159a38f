package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace-mq/millrace/client"
)

// Names of the counters of an idle run, bytes.
const (
	counterResidentBefore = "broker_rss_before_bytes"
	counterResidentAfter  = "broker_rss_after_bytes"
	counterPerConnection  = "broker_rss_per_connection_bytes"
)

// dialers bounds the connections that an idle run makes at the same time.
const dialers = 32

// settleTime is how long an idle run lets connections rest before it looks: what
// connecting took for a moment is given back by then.
const settleTime = 3 * time.Second

// Idle opens the shape's clients, each of which says HELLO and nothing more, and
// measures by how much the broker's resident memory grew for each. Acked counts the
// connections; latency is that of connecting.
//
// Errors: those of the shape and of connecting, without a Run; the first connection
// that was refused or lost, beside the Run up to then; errors.ErrUnsupported for a
// broker whose process is not on this machine.
func (b *Bench) Idle(ctx context.Context, shape Shape) (_ *Run, err error) {
	shape.Messages = uint64(shape.Clients)
	s, err := b.set(ctx, ScenarioIdle, shape, false)
	if err != nil {
		return nil, err
	}
	run := &Run{Messages: shape.Messages, Place: s.meter.place}
	err = s.measureIdle(ctx, run)
	return run, s.strike(ctx, err)
}

func (s *stage) measureIdle(ctx context.Context, run *Run) error {
	if s.meter.pid == 0 {
		return fmt.Errorf("memory of a broker that does not run on this machine: %w", errors.ErrUnsupported)
	}
	if err := s.crowd(ctx, dialers, &Run{}); err != nil { // what the first connections take once
		return err
	}
	before, err := readResident(s.meter.pid)
	if err != nil {
		return err
	}
	from, err := s.meter.read(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	var after int64
	err = s.crowdThen(ctx, s.shape.Clients, run, func() (err error) {
		after, err = readResident(s.meter.pid)
		return err
	})
	phase := Phase{Name: ScenarioIdle, Messages: run.Acked, Elapsed: time.Since(began)}
	run.Elapsed = phase.Elapsed
	if err == nil {
		err = s.spend(ctx, &phase, &from, run)
	}
	run.Phases = append(run.Phases, phase)
	if err != nil {
		return err
	}
	run.Counters[counterResidentBefore], run.Counters[counterResidentAfter] = before, after
	run.Counters[counterPerConnection] = (after - before) / int64(s.shape.Clients)
	return nil
}

func (s *stage) crowd(ctx context.Context, n int, run *Run) error {
	return s.crowdThen(ctx, n, run, func() error { return nil })
}

// crowdThen opens n clients, lets them rest, calls look and closes them.
func (s *stage) crowdThen(ctx context.Context, n int, run *Run, look func() error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	add, end := s.phase(ScenarioIdle, uint64(n))
	defer end()
	clients := make([]*client.Client, n)
	times := make([]Histogram, min(n, dialers))
	var group sync.WaitGroup
	for d := range times {
		group.Go(func() {
			for i := d; i < n; i += len(times) {
				began := time.Now()
				c, err := s.open(ctx, fmt.Sprintf("idle-%d", i), func(err error) { cancel(err) })
				if err != nil {
					cancel(err)
					return
				}
				clients[i] = c
				times[d].Record(int64(time.Since(began)))
				add(1)
			}
		})
	}
	group.Wait()
	select {
	case <-ctx.Done():
	case <-time.After(cmp.Or(s.settle, settleTime)):
	}
	err := context.Cause(ctx)
	if err == nil {
		err = look()
	}
	for d := range times {
		run.Latency.Merge(&times[d])
	}
	for _, c := range clients {
		if c != nil {
			run.Acked++
			err = errors.Join(err, c.Close())
		}
	}
	return err
}
