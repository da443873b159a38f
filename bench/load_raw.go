package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-mq/millrace/protocol"
)

// rawWindow is how many runs a raw publisher may have unanswered.
const rawWindow = 16

// rawPublisher sends runs made beforehand over a connection of its own, without the
// client: what is measured then is the broker. It is to the broker what PerFrameLoad is
// to the per-frame method. One goroutine writes runs, another reads answers.
type rawPublisher struct {
	// immutable
	conn   net.Conn
	reader *protocol.Reader // of the goroutine that reads, after the handshake
	handle uint32
	run    []byte // header and frames
	n      uint64 // records of a run
	runs   uint64 // to send
	window uint64
	moved  chan struct{} // capacity 1: acked has grown
	ended  chan struct{} // closed when no more answers will come

	// atomic, published by the goroutine that reads
	acked atomic.Uint64 // runs
}

// newRawPublisher connects and makes the run of one client. Of whole runs at least
// the messages are sent.
func (s *stage) newRawPublisher(ctx context.Context, messages uint64, payloads *Payloads, id uint32) (_ *rawPublisher, err error) {
	p := &rawPublisher{window: rawWindow, moved: make(chan struct{}, 1), ended: make(chan struct{})}
	if p.conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr); err != nil {
		return nil, err
	}
	p.reader = protocol.NewReader(p.conn)
	if err := p.greet(s.topic); err != nil {
		return nil, errors.Join(err, p.conn.Close())
	}
	frames := max(1, loopbackChunk/s.shape.frameSize())
	if s.shape.Lockstep {
		frames, p.window = 1, 1
	}
	frames = min(frames, max(1, int(messages)/s.shape.Batch))
	p.n = uint64(frames * s.shape.Batch)
	p.runs = max(1, messages/p.n)
	if p.run, err = rawRun(&s.shape, payloads, id, frames); err != nil {
		return nil, errors.Join(err, p.conn.Close())
	}
	protocol.HeaderOf(p.run).PutProduce(s.shape.Level, p.handle, 0, uint32(len(p.run)-protocol.HeaderSize))
	return p, nil
}

// rawRun makes a run of so many frames; its header is still to be filled in.
func rawRun(shape *Shape, payloads *Payloads, id uint32, frames int) ([]byte, error) {
	run := make([]byte, protocol.HeaderSize)
	value := make([]byte, shape.Size)
	var batch protocol.Batch
	for i := range frames {
		for k := range shape.Batch {
			payloads.Fill(value, id, uint64(i*shape.Batch+k))
			if err := batch.Add(nil, value, nil); err != nil {
				return nil, err
			}
		}
		run = append(run, batch.Seal()...)
		batch.Reset()
	}
	return run, nil
}

// greet says HELLO and opens partition 0 of the topic.
func (p *rawPublisher) greet(topic string) error {
	hello := protocol.Hello{MinVersion: protocol.Version, MaxVersion: protocol.Version, Client: "bench-raw"}
	if _, err := p.ask(protocol.OpHello, "", hello.AppendTo(nil)); err != nil {
		return err
	}
	open := protocol.Open{}
	reply, err := p.ask(protocol.OpOpen, topic, open.AppendTo(nil))
	if err != nil {
		return err
	}
	var opened protocol.OpenReply
	err = opened.Decode(reply)
	p.handle = opened.Handle
	return err
}

// ask makes a request and waits for the answer.
func (p *rawPublisher) ask(op protocol.Opcode, key string, payload []byte) ([]byte, error) {
	var h protocol.Header
	h.PutRequest(op, 0, 0, 1, 0, len(key), len(payload))
	request := append(append(append([]byte(nil), h[:]...), key...), payload...)
	if _, err := p.conn.Write(request); err != nil {
		return nil, err
	}
	f, err := p.reader.Next()
	if err != nil {
		return nil, fmt.Errorf("%v: %w", op, err)
	}
	answer := protocol.HeaderOf(f)
	body := f[protocol.HeaderSize+int(answer.KeySize()):]
	switch {
	case answer.Magic() != protocol.MagicResponse:
		return nil, fmt.Errorf("%w: %v answered by %v", ErrBadFrame, op, answer.Magic())
	case answer.Status() != protocol.OK:
		return nil, refusalOf(answer.Status(), body)
	}
	return append([]byte(nil), body...), nil
}

func refusalOf(code protocol.Code, body []byte) error {
	var e protocol.Error
	if err := e.Decode(code, body); err != nil {
		return errors.Join(code, err)
	}
	return &e
}

// publish sends all runs and returns when they are answered.
func (p *rawPublisher) publish(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { closeQuietly(p.conn) })
	defer stop()
	read := make(chan error, 1)
	go func() {
		defer close(p.ended)
		err := p.readAcks()
		if err != nil {
			closeQuietly(p.conn) // no use in writing on
		}
		read <- err
	}()
	written := p.writeRuns()
	if written != nil {
		closeQuietly(p.conn)
	}
	err := errors.Join(<-read, written)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(err, p.conn.Close())
}

func (p *rawPublisher) writeRuns() error {
	for sent := uint64(0); sent < p.runs; {
		if sent-p.acked.Load() == p.window {
			select {
			case <-p.moved:
			case <-p.ended:
				return nil // the reader knows why
			}
			continue
		}
		if _, err := p.conn.Write(p.run); err != nil {
			return err
		}
		sent++
	}
	return nil
}

func (p *rawPublisher) readAcks() error {
	for p.acked.Load() < p.runs {
		f, err := p.reader.Next()
		if err != nil {
			return fmt.Errorf("after %d of %d runs: %w", p.acked.Load(), p.runs, err)
		}
		h := protocol.HeaderOf(f)
		switch {
		case h.Magic() == protocol.MagicPing:
			continue // runs are sign of life enough
		case h.Magic() != protocol.MagicAck:
			return fmt.Errorf("%w: %v instead of an answer to a run", ErrBadFrame, h.Magic())
		case h.AckStatus() != protocol.OK:
			return refusalOf(h.AckStatus(), f[protocol.HeaderSize+int(h.KeySize()):])
		case uint64(h.RecordCount()) != p.n:
			return fmt.Errorf("%w: %d records acknowledged of a run of %d", ErrBadFrame, h.RecordCount(), p.n)
		}
		p.acked.Add(1)
		select {
		case p.moved <- struct{}{}:
		default:
		}
	}
	return nil
}

// measureRaw runs the shape's clients as raw publishers, as a phase of run.
func (s *stage) measureRaw(ctx context.Context, payloads *Payloads, run *Run) error {
	add, end := s.phase(ScenarioRatio, s.shape.Messages)
	defer end()
	publishers := make([]*rawPublisher, s.shape.Clients)
	for i := range publishers {
		p, err := s.newRawPublisher(ctx, s.shape.share(s.shape.Messages, i), payloads, uint32(i))
		if err != nil {
			return err
		}
		defer closeQuietly(p.conn)
		publishers[i] = p
	}
	before, err := s.meter.read(ctx)
	if err != nil {
		return err
	}
	errs := make([]error, len(publishers))
	began := time.Now()
	var group sync.WaitGroup
	for i, p := range publishers {
		group.Go(func() {
			errs[i] = p.publish(ctx)
			add(p.acked.Load() * p.n)
		})
	}
	group.Wait()
	phase := Phase{Name: ScenarioProduce, Elapsed: time.Since(began)}
	for _, p := range publishers {
		phase.Messages += p.acked.Load() * p.n
	}
	run.Acked, run.Elapsed = phase.Messages, phase.Elapsed
	if err := errors.Join(errs...); err != nil {
		return err
	}
	err = s.spend(ctx, &phase, &before, run)
	run.Phases = append(run.Phases, phase)
	return err
}
