package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace-mq/millrace/client"
)

// E2E publishes the shape's messages and has a separate consumer process, started as
// argv (a command that calls ConsumerMain), read all of them back and check each one:
// after the last is acknowledged, or simultaneously. Latency is that of Produce.
//
// Verify holds the account of both ends: of what was acknowledged nothing may be
// missing, and nothing may come twice, out of a producer's order or with a wrong byte.
//
// Errors: as Produce; those of the consumer process. A broker that dies while messages
// are published leaves nothing to read back, so Verify stays zero then.
func (b *Bench) E2E(ctx context.Context, shape Shape, simultaneous bool, argv ...string) (_ *Run, err error) {
	payloads, err := NewPayloads(shape.Seed, max(shape.Size, MinPayload))
	if err != nil {
		return nil, err
	}
	s, err := b.set(ctx, ScenarioE2E, shape, true)
	if err != nil {
		return nil, err
	}
	run := &Run{Messages: shape.Messages, Place: s.meter.place}
	if simultaneous {
		err = s.measureBoth(ctx, payloads, run, argv)
	} else {
		err = s.measureTurns(ctx, payloads, run, argv)
	}
	return run, s.strike(ctx, err)
}

// job is what the consumer process of this stage has to do.
func (s *stage) job(follow bool) consumerJob {
	return consumerJob{Addr: s.Addr, Topic: s.topic, Seed: s.shape.Seed, Size: s.shape.Size, Producers: s.shape.Clients,
		Partitions: s.shape.Partitions, Limit: max(s.shape.share(s.shape.Messages, 0), 1), Follow: follow}
}

// measureTurns publishes and then consumes.
func (s *stage) measureTurns(ctx context.Context, payloads *Payloads, run *Run, argv []string) error {
	err := s.measurePublish(ctx, payloads, run)
	run.Elapsed = run.Phases[0].Elapsed
	if err != nil {
		return err
	}
	add, end := s.phase(ScenarioConsume, run.Acked)
	defer end()
	before, err := s.meter.read(ctx)
	if err != nil {
		return err
	}
	p, err := startConsumer(ctx, argv, s.job(false), add)
	if err != nil {
		return err
	}
	work, _, err := p.finish(ctx, run.Spans)
	if err := errors.Join(err, p.stop()); err != nil {
		return err
	}
	run.Elapsed += work.Elapsed
	return s.consumed(ctx, work, &before, run)
}

// consumed adds what the consumer process did to run.
func (s *stage) consumed(ctx context.Context, work consumerWork, before *reading, run *Run) error {
	run.Verify = work.Verify
	phase := Phase{Name: ScenarioConsume, Messages: work.Records, Elapsed: work.Elapsed}
	if err := s.spend(ctx, &phase, before, run); err != nil {
		return err
	}
	phase.Client = work.CPU
	run.Counters[ScenarioConsume+"_client_cpu_ns"] = int64(work.CPU)
	run.Phases = append(run.Phases, phase)
	return nil
}

// measureBoth publishes and consumes at the same time. What the broker spent up to the
// last acknowledgement stands with the publishing, what it spent after with the consuming.
func (s *stage) measureBoth(ctx context.Context, payloads *Payloads, run *Run, argv []string) (err error) {
	add, end := s.phase(ScenarioConsume, s.shape.Messages)
	defer end()
	p, err := startConsumer(ctx, argv, s.job(true), add)
	if err != nil {
		return err
	}
	defer func() {
		// A consumer that was not told the end of its job fails by being stopped.
		if stopped := p.stop(); err == nil {
			err = stopped
		}
	}()
	if err := p.connected(ctx); err != nil {
		return err
	}
	silent := *s.Bench // the consumer's progress is shown
	silent.Progress = nil
	publishing := *s
	publishing.Bench = &silent
	began := time.Now()
	err = publishing.measurePublish(ctx, payloads, run)
	run.Elapsed = run.Phases[0].Elapsed
	if err != nil {
		return err
	}
	before, err := s.meter.read(ctx)
	if err != nil {
		return err
	}
	if err := s.markEnds(ctx); err != nil {
		return err
	}
	work, at, err := p.finish(ctx, run.Spans)
	if err != nil {
		return err
	}
	run.Elapsed = max(run.Elapsed, at.Sub(began))
	return s.consumed(ctx, work, &before, run)
}

// markEnds tells a following consumer where each partition ends.
func (s *stage) markEnds(ctx context.Context) (err error) {
	p, err := s.admin.NewProducer(client.Durable(s.shape.Level))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	for n := range s.shape.Partitions {
		_, err := p.Send(ctx, client.Message{Topic: s.topic, Partition: client.Partition(uint32(n)), Key: []byte(endKey)})
		if err != nil {
			return fmt.Errorf("end mark of partition %d: %w", n, err)
		}
	}
	return nil
}
