package bench

import "context"

// Produce publishes the shape's messages and times each batch from when it was sent,
// or due, to its acknowledgement.
//
// With level none nobody acknowledges: what counts as acked was written to a socket,
// and the run lasts until the broker has all of it.
//
// Errors: those of the shape, of connecting and of the topic, without a Run; the first
// failure of the load, beside the Run up to then.
func (b *Bench) Produce(ctx context.Context, shape Shape) (_ *Run, err error) {
	payloads, err := NewPayloads(shape.Seed, max(shape.Size, MinPayload))
	if err != nil {
		return nil, err
	}
	s, err := b.set(ctx, ScenarioProduce, shape, true)
	if err != nil {
		return nil, err
	}
	run := &Run{Messages: shape.Messages, Place: s.meter.place}
	err = s.measurePublish(ctx, payloads, run)
	run.Elapsed = run.Phases[0].Elapsed
	return run, s.strike(ctx, err)
}

// measurePublish runs the load and adds it to run as a phase, whatever becomes of it.
func (s *stage) measurePublish(ctx context.Context, payloads *Payloads, run *Run) error {
	before, err := s.meter.read(ctx)
	var done published
	if err == nil {
		done, err = s.publish(ctx, payloads)
	}
	run.Acked, run.Spans = done.acked, done.spans
	run.Latency.Merge(&done.latency)
	phase := Phase{Name: ScenarioProduce, Messages: done.acked, Elapsed: done.elapsed}
	if err == nil {
		err = s.spend(ctx, &phase, &before, run)
	}
	run.Phases = append(run.Phases, phase)
	return err
}

// spend completes a phase with what it cost since the reading before.
func (s *stage) spend(ctx context.Context, phase *Phase, before *reading, run *Run) error {
	after, err := s.meter.read(ctx)
	if err != nil {
		return err
	}
	phase.Spent = after.since(before)
	if run.Counters == nil {
		run.Counters = make(map[string]int64)
	}
	for name, n := range after.counters(before) {
		run.Counters[phase.Name+"_"+name] = n
	}
	run.Counters[phase.Name+"_broker_cpu_ns"] = int64(phase.Broker)
	run.Counters[phase.Name+"_client_cpu_ns"] = int64(phase.Client)
	run.Counters[phase.Name+"_messages"] = int64(phase.Messages)
	run.Counters[phase.Name+"_ns"] = int64(phase.Elapsed)
	return nil
}
