package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace-mq/millrace/client"
)

// DefaultLatencyRate is the rate of a latency run that is given none, messages per
// second.
const DefaultLatencyRate = 5000

// Names of the recordings of a latency run.
const (
	latencyLate = "send_lateness" // from due to the call that sends
	latencyAck  = "acknowledged"  // from due to the acknowledgement
)

// Latency publishes one message at a time at a steady rate to a consumer that waits
// for it, and times each from when it was due to when it was received and checked. A
// stall of the harness or the broker makes every message behind it late, as it would
// for those who send at that rate.
//
// Producer and consumer are goroutines of this process with a connection each, so that
// one clock times both ends.
//
// Errors: as Produce.
func (b *Bench) Latency(ctx context.Context, shape Shape) (_ *Run, err error) {
	if shape.Rate == 0 {
		shape.Rate = DefaultLatencyRate
	}
	shape.Clients, shape.Batch, shape.Partitions = 1, 1, 1
	payloads, err := NewPayloads(shape.Seed, max(shape.Size, MinPayload))
	if err != nil {
		return nil, err
	}
	s, err := b.set(ctx, ScenarioLatency, shape, true)
	if err != nil {
		return nil, err
	}
	run := &Run{Messages: shape.Messages, Place: s.meter.place}
	err = s.measureLatency(ctx, payloads, run)
	return run, s.strike(ctx, err)
}

// pulse is one latency run.
type pulse struct {
	*stage

	// immutable
	payloads *Payloads
	interval float64 // ns
	greeted  chan struct{}
	started  chan struct{} // closed when began is set
	over     chan struct{} // closed when the consumer has ended

	began time.Time // set before started is closed

	// owned by the consumer
	latency  Histogram
	account  *Accounting
	received uint64

	// owned by the producer's callbacks
	ack   Histogram
	acked uint64

	// owned by the producer
	late Histogram
}

// The greeting is a message of a second producer. When it has come through, the
// consumer waits at the end of the topic, and all connections have been used.
const greeter = 1

// arrivalPatience bounds the wait for messages that were acknowledged and have not
// come: what is missing then is lost.
const arrivalPatience = 10 * time.Second

func (s *stage) measureLatency(ctx context.Context, payloads *Payloads, run *Run) error {
	add, end := s.phase(ScenarioLatency, s.shape.Messages)
	defer end()
	account, err := NewAccounting(payloads, greeter+1, 1, max(s.shape.Messages, 1))
	if err != nil {
		return err
	}
	p := &pulse{stage: s, payloads: payloads, interval: float64(time.Second) / s.shape.Rate, account: account,
		greeted: make(chan struct{}), started: make(chan struct{}), over: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var reading error
	var group sync.WaitGroup
	group.Go(func() {
		defer close(p.over)
		if reading = p.receive(ctx, add); reading != nil {
			cancel(reading)
		}
	})
	phase := Phase{Name: ScenarioLatency}
	err = p.send(ctx, cancel, &phase, run)
	group.Wait()
	if err == nil && !errors.Is(reading, errOverdue) {
		err = reading
	}
	if p.acked > 0 {
		err = errors.Join(err, account.Acked(0, 0, p.acked))
	}
	phase.Messages = p.acked
	run.Acked, run.Elapsed, run.Verify = p.acked, phase.Elapsed, account.Verify()
	run.Latency.Merge(&p.latency)
	run.Latencies = map[string]*Histogram{latencyLate: &p.late, latencyAck: &p.ack}
	run.Phases = append(run.Phases, phase)
	return err
}

// errOverdue ends the wait of a consumer for messages that do not come.
var errOverdue = fmt.Errorf("nothing came for %v", arrivalPatience)

// send greets the consumer, publishes at the rate, and waits until everything is
// acknowledged and received.
func (p *pulse) send(ctx context.Context, cancel context.CancelCauseFunc, phase *Phase, run *Run) (err error) {
	c, err := p.open(ctx, "producer", func(err error) { cancel(err) })
	if err != nil {
		cancel(err)
		return err
	}
	defer func() {
		if closed := c.Close(); err == nil { // what a failure left unanswered is no news
			err = closed
		}
	}()
	producer, err := c.NewProducer(client.Durable(p.shape.Level), client.Linger(p.shape.Linger), client.NoRetry())
	if err == nil {
		err = p.greet(ctx, producer)
	}
	var before reading
	if err == nil {
		before, err = p.meter.read(ctx)
	}
	if err == nil {
		p.began = time.Now()
		close(p.started)
		err = errors.Join(p.publish(ctx, cancel, producer), producer.Flush(ctx))
	}
	if err != nil {
		cancel(err)
		return context.Cause(ctx)
	}
	p.awaitArrivals(cancel)
	phase.Elapsed = time.Since(p.began)
	return p.spend(context.WithoutCancel(ctx), phase, &before, run)
}

// greet sends the greeting and waits until the consumer has it.
func (p *pulse) greet(ctx context.Context, producer *client.Producer) error {
	value := make([]byte, p.shape.Size)
	p.payloads.Fill(value, greeter, 0)
	if _, err := producer.Send(ctx, client.Message{Topic: p.topic, Value: value}); err != nil {
		return err
	}
	select {
	case <-p.greeted:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// publish sends the messages as they fall due.
func (p *pulse) publish(ctx context.Context, cancel context.CancelCauseFunc, producer *client.Producer) error {
	pace := newPace(p.began, p.interval, 0)
	defer pace.end()
	value := make([]byte, p.shape.Size)
	m := client.Message{Topic: p.topic, Value: value}
	done := func(_ client.Ack, err error) {
		if err != nil {
			cancel(err)
			return
		}
		p.ack.Record(int64(time.Since(p.began)) - p.due(p.acked))
		p.acked++
	}
	for seq := range p.shape.Messages {
		due := pace.wait(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.late.Record(int64(time.Since(p.began)) - due)
		p.payloads.Fill(value, 0, seq)
		if err := producer.Async(m, done); err != nil {
			return err
		}
	}
	return nil
}

// due is when message seq should be sent, ns since the run began.
func (p *pulse) due(seq uint64) int64 { return int64(float64(seq) * p.interval) }

// awaitArrivals waits for the consumer's end.
func (p *pulse) awaitArrivals(cancel context.CancelCauseFunc) {
	late := time.NewTimer(arrivalPatience)
	defer late.Stop()
	select {
	case <-p.over:
	case <-late.C:
		cancel(errOverdue)
		<-p.over
	}
}

// receive reads until all messages have come.
func (p *pulse) receive(ctx context.Context, add func(uint64)) error {
	r := reader{topic: p.topic, add: add, see: func(partition int, _ uint64, value []byte) {
		now := time.Since(p.began)
		p.account.Observe(partition, value)
		producer, seq, ok := p.payloads.Check(value)
		switch {
		case !ok:
		case producer == greeter:
			close(p.greeted)
			<-p.started
		default:
			p.latency.Record(int64(now) - p.due(seq))
			p.received++
		}
	}}
	return r.read(ctx, p.Bench, "consumer", client.MaxRecords(p.shape.Messages+1))
}
