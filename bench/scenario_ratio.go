package bench

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/millrace-mq/millrace/protocol"
)

// Ratios measures the broker and the per-frame method in turns, repeat by repeat, so
// that both meet the same machine: ingest of the shape's batches, ingest of frames of
// one record, and what serving a message to one consumer costs. One repeat before the
// others does not count.
//
// perFrame makes the command of a per-frame broker (one that calls PerFrameMain) over a
// directory; directories are made within dir, best on the disk of the broker's data.
// Both are sent frames made beforehand, by the same number of connections in writes of
// about the same size, so that the load costs the same; the per-frame method
// acknowledges what is written, so the level is written.
func (b *Bench) Ratios(ctx context.Context, shape Shape, repeats int, dir string, perFrame func(dir string) []string) ([]Ratio, error) {
	shape.Level, shape.Partitions, shape.Rate = protocol.LevelWritten, 1, 0
	if err := shape.Validate(); err != nil {
		return nil, err
	}
	r := &race{Bench: b, shape: shape, dir: dir, perFrame: perFrame, pairs: make(map[string][]pair)}
	for i := range repeats + 1 {
		if i == 1 {
			clear(r.pairs)
		}
		if err := r.repeat(ctx); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx) // once, not from each connection
			}
			return nil, fmt.Errorf("repeat %d of %d: %w", i, repeats, err)
		}
	}
	how := fmt.Sprintf("%d producers, frames of %%d records of %d bytes", shape.Clients, shape.Size)
	return []Ratio{
		newRatio(ratioIngest, fmt.Sprintf(how, shape.Batch), "msg/s", false, r.pairs[ratioIngest]),
		newRatio(ratioUnbatched, fmt.Sprintf(how, 1), "msg/s", false, r.pairs[ratioUnbatched]),
		newRatio(ratioIngestCPU, "broker CPU of "+ratioIngest, "ns/msg", true, r.pairs[ratioIngestCPU]),
		newRatio(ratioServeCPU, "broker CPU of serving the same log to one consumer", "ns/msg", true, r.pairs[ratioServeCPU]),
	}, nil
}

// race is a comparison under way.
type race struct {
	*Bench
	shape    Shape
	dir      string
	perFrame func(dir string) []string
	pairs    map[string][]pair
}

// unbatchedShare is the part of the messages that the per-frame method is given in
// frames of one record, which take it much longer.
const unbatchedShare = 20

func (r *race) repeat(ctx context.Context) error {
	slow, slowServe, err := r.runPerFrame(ctx, r.shape.Batch, r.shape.Messages)
	if err != nil {
		return err
	}
	run, serve, err := r.runMillrace(ctx, r.shape.Batch)
	if err != nil {
		return err
	}
	single, _, err := r.runPerFrame(ctx, 1, max(r.shape.Messages/unbatchedShare, uint64(r.shape.Clients)))
	if err != nil {
		return err
	}
	unbatched, _, err := r.runMillrace(ctx, 1)
	if err != nil {
		return err
	}
	r.add(ratioIngest, slow.Rate(), run.Rate())
	r.add(ratioUnbatched, single.Rate(), unbatched.Rate())
	r.add(ratioIngestCPU, perMessage(slow), cpuPerMessage(run))
	r.add(ratioServeCPU, perMessage(slowServe), cpuPerMessage(serve))
	return nil
}

func (r *race) add(name string, perFrame, millrace float64) {
	r.pairs[name] = append(r.pairs[name], pair{perFrame, millrace})
}

func perMessage(r PerFrameReport) float64 { return float64(r.Server.CPU) / float64(max(r.Messages, 1)) }

func cpuPerMessage(r *Run) float64 { return float64(r.spent().Broker) / float64(max(r.Acked, 1)) }

// runPerFrame loads and drains a per-frame broker of its own.
func (r *race) runPerFrame(ctx context.Context, batch int, messages uint64) (load, drain PerFrameReport, err error) {
	dir, err := os.MkdirTemp(r.dir, "millrace-per-frame-")
	if err != nil {
		return load, drain, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p, err := StartPerFrame(ctx, r.perFrame(dir)...)
	if err != nil {
		return load, drain, err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	shape := PerFrameShape{Producers: r.shape.Clients, Frames: int64(max(messages/uint64(batch), 1)), Records: batch, Size: r.shape.Size}
	if r.shape.Lockstep {
		shape.Window = 1
	}
	if load, err = p.Load(ctx, shape); err != nil {
		return load, drain, err
	}
	drain, err = p.Drain(ctx, shape.Frames)
	return load, drain, err
}

// runMillrace loads a topic and reads it back by one consumer, which checks each
// payload; runs are sent over and over, so each comes more than once.
func (r *race) runMillrace(ctx context.Context, batch int) (run, serve *Run, err error) {
	payloads, err := NewPayloads(r.shape.Seed, r.shape.Size)
	if err != nil {
		return nil, nil, err
	}
	shape := r.shape
	shape.Batch = batch
	s, err := r.set(ctx, ScenarioRatio, shape, true)
	if err != nil {
		return nil, nil, err
	}
	run = &Run{Messages: shape.Messages, Place: s.meter.place}
	if err = s.measureRaw(ctx, payloads, run); err == nil {
		shape.Topic, shape.Clients, shape.Messages = s.topic, 1, 0
		serve, err = r.Consume(ctx, shape, nil)
	}
	if err == nil && (serve.Acked != run.Acked || serve.Verify.Lost+serve.Verify.Altered+serve.Verify.Foreign > 0) {
		err = fmt.Errorf("%w: %d records of %d, %v", ErrFlawed, serve.Acked, run.Acked, serve.Verify)
	}
	return run, serve, s.strike(ctx, err)
}
