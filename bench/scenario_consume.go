package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/millrace-mq/millrace/client"
	"github.com/millrace-mq/millrace/protocol"
)

// Consume reads a topic from its start to its end as of now, by each of the shape's
// clients whole, and checks every record. Acked counts the records of all clients. A
// shape without a topic is given one that is filled with its messages before the
// measurement.
//
// With expected, the spans that producers had acknowledged (Run.Spans of a run with the
// same seed and size), and for a topic of the run's own, records are accounted for
// exactly; else lost counts gaps between offsets only.
//
// Errors: those of the shape, of connecting and of filling, and protocol.UnknownTopic,
// without a Run; the first failure of a consumer, beside the Run up to then.
func (b *Bench) Consume(ctx context.Context, shape Shape, expected []Span) (_ *Run, err error) {
	payloads, err := NewPayloads(shape.Seed, max(shape.Size, MinPayload))
	if err != nil {
		return nil, err
	}
	s, err := b.set(ctx, ScenarioConsume, shape, shape.Topic == "")
	if err != nil {
		return nil, err
	}
	if shape.Topic == "" {
		expected, err = s.fill(ctx, payloads)
	}
	var held extent
	if err == nil {
		held, err = s.extent(ctx)
	}
	if err != nil {
		return nil, s.strike(ctx, err)
	}
	run := &Run{Place: s.meter.place}
	err = s.measureConsume(ctx, payloads, expected, held, run)
	return run, s.strike(ctx, err)
}

// fillers is how many producers fill a topic that is to be read.
const fillers = 4

// fill publishes what is then read.
func (s *stage) fill(ctx context.Context, payloads *Payloads) ([]Span, error) {
	filling := *s
	filling.shape.Clients, filling.shape.Conns, filling.shape.Rate = fillers, 0, 0
	done, err := filling.publish(ctx, payloads)
	return done.spans, err
}

// extent is what a topic holds.
type extent struct {
	partitions int
	records    uint64 // kept
	ever       uint64 // appended since it exists
}

func (s *stage) extent(ctx context.Context) (e extent, err error) {
	all, err := s.admin.Offsets(ctx, s.topic, protocol.End)
	e.partitions = len(all)
	for i := range all {
		e.records += all[i].End - all[i].Start
		e.ever += all[i].End
	}
	return e, err
}

func (s *stage) measureConsume(ctx context.Context, payloads *Payloads, expected []Span, held extent, run *Run) (err error) {
	if held.ever > MaxMessages {
		return fmt.Errorf("%w: %s has %d offsets, records of at most %d are checked", ErrOutOfRange, s.topic, held.ever, MaxMessages)
	}
	records := held.records
	if n := s.shape.Messages; n > 0 {
		records = min(records, n)
	}
	run.Messages = records * uint64(s.shape.Clients)
	add, end := s.phase(ScenarioConsume, run.Messages)
	defer end()
	judges := make([]judge, s.shape.Clients)
	readers := make([]reader, s.shape.Clients)
	for i := range readers {
		if judges[i], err = newJudge(payloads, expected, held); err != nil {
			return err
		}
		readers[i] = reader{topic: s.topic, see: judges[i].observe, add: add}
	}
	before, err := s.meter.read(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	failure := s.readAll(ctx, readers, records)
	phase := Phase{Name: ScenarioConsume, Elapsed: time.Since(began)}
	for i := range readers {
		phase.Messages += readers[i].records
		run.Verify.add(judges[i].verdict())
	}
	run.Acked, run.Elapsed = phase.Messages, phase.Elapsed
	if failure == nil {
		failure = s.spend(ctx, &phase, &before, run)
	}
	run.Phases = append(run.Phases, phase)
	return failure
}

// readAll runs the readers, each for so many records, and returns the first error.
func (s *stage) readAll(ctx context.Context, readers []reader, records uint64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if records == 0 {
		return nil
	}
	var group sync.WaitGroup
	for i := range readers {
		group.Go(func() {
			err := readers[i].read(ctx, s.Bench, fmt.Sprintf("consumer-%d", i), client.Until(protocol.End), client.MaxRecords(records))
			if err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// judge is who looks at the records that one consumer reads.
type judge interface {
	observe(partition int, offset uint64, value []byte)
	verdict() Verify
}

func (a *arrivals) verdict() Verify { return a.found }

// ledger is an Accounting as a judge.
type ledger struct{ *Accounting }

func (l ledger) observe(partition int, _ uint64, value []byte) { l.Observe(partition, value) }
func (l ledger) verdict() Verify                               { return l.Verify() }

// newJudge makes the strictest judge for what is known.
func newJudge(payloads *Payloads, expected []Span, held extent) (judge, error) {
	if expected == nil {
		return &arrivals{payloads: payloads, limit: held.ever}, nil
	}
	producers, limit := boundsOf(expected)
	a, err := NewAccounting(payloads, producers, max(held.partitions, 1), max(limit, held.ever, 1))
	if err != nil {
		return nil, err
	}
	return ledger{a}, a.expect(expected)
}

// boundsOf returns how many producers the spans are of, and one above the highest
// sequence number.
func boundsOf(spans []Span) (producers int, limit uint64) {
	producers = 1
	for _, s := range spans {
		producers = max(producers, int(s.Producer)+1)
		limit = max(limit, s.From+s.N)
	}
	return producers, limit
}

// expect notes all spans as acked.
func (a *Accounting) expect(spans []Span) error {
	for _, s := range spans {
		if err := a.Acked(s.Producer, s.From, s.N); err != nil {
			return err
		}
	}
	return nil
}

func (v *Verify) add(w Verify) {
	v.Lost += w.Lost
	v.Duplicated += w.Duplicated
	v.Reordered += w.Reordered
	v.Altered += w.Altered
	v.Foreign += w.Foreign
}
