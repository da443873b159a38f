package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// PerFrameShape describes a load for the per-frame broker.
type PerFrameShape struct {
	Producers int   // connections, 1 to 63
	Frames    int64 // of all producers together, 1 to 2^40
	Records   int   // in one frame, at least 1
	Size      int   // bytes of one record's value, at least MinPayload
	Window    int   // frames a producer may have unanswered; 1 is lockstep, 0 leaves it to TCP
}

// frameSize returns the size of each frame. A record is u32 key size (0), u32 value
// size and the value.
func (s PerFrameShape) frameSize() int { return perFrameHeader + s.Records*(8+s.Size) }

func (s PerFrameShape) check() error {
	switch {
	case s.Producers < 1 || s.Producers >= PerFrameMaxConns:
		return fmt.Errorf("%w: %d producers, want 1 to %d", ErrOutOfRange, s.Producers, PerFrameMaxConns-1)
	case s.Frames < 1 || s.Frames > 1<<40:
		return fmt.Errorf("%w: %d frames, want 1 to %d", ErrOutOfRange, s.Frames, int64(1)<<40)
	case s.Size < MinPayload || s.Size > PerFrameMaxFrame:
		return fmt.Errorf("%w: values of %d bytes, want %d to %d", ErrOutOfRange, s.Size, MinPayload, PerFrameMaxFrame)
	case s.Records < 1 || s.Records > PerFrameMaxFrame/(8+s.Size):
		return fmt.Errorf("%w: %d records a frame, want 1 to %d of %d bytes",
			ErrOutOfRange, s.Records, PerFrameMaxFrame/(8+s.Size), s.Size)
	case s.Window < 0:
		return fmt.Errorf("%w: window of %d frames, want 0 or more", ErrOutOfRange, s.Window)
	}
	return nil
}

// PerFrameReport is what a load or a drain of the per-frame broker did.
type PerFrameReport struct {
	Frames   int64
	Messages int64
	Bytes    int64 // of frames, headers included
	Elapsed  time.Duration
	Server   Usage // CPU of the broker during the run and its peak memory so far; zero where not asked for
}

// Rate returns messages per second.
func (r PerFrameReport) Rate() float64 { return float64(r.Messages) / r.Elapsed.Seconds() }

// PerFrameLoad sends frames made beforehand, as many in one write as fit 256 KiB and
// the window, and returns when all are acknowledged.
//
// Errors: ErrOutOfRange for a bad shape, ErrRefused for a refused frame, ErrBadFrame
// for an ack that cannot be; the error of the context when it ends.
func PerFrameLoad(ctx context.Context, addr string, shape PerFrameShape) (PerFrameReport, error) {
	if err := shape.check(); err != nil {
		return PerFrameReport{}, err
	}
	runs, err := perFrameRuns(shape)
	if err != nil {
		return PerFrameReport{}, err
	}
	producers := make([]*perFrameProducer, shape.Producers)
	for i := range producers {
		conn, err := dialPerFrame(ctx, addr, perFrameProduce)
		if err != nil {
			return PerFrameReport{}, err
		}
		defer closeQuietly(conn)
		frames := shape.Frames / int64(shape.Producers)
		if int64(i) < shape.Frames%int64(shape.Producers) {
			frames++
		}
		producers[i] = &perFrameProducer{
			conn: conn, run: runs[i], shape: shape, frames: frames,
			moved: make(chan struct{}, 1), ended: make(chan struct{}),
		}
	}
	began := time.Now()
	errs := make([]error, len(producers))
	var group sync.WaitGroup
	for i, p := range producers {
		group.Go(func() { errs[i] = p.produce(ctx) })
	}
	group.Wait()
	elapsed := time.Since(began)
	if err := errors.Join(errs...); err != nil {
		return PerFrameReport{}, err
	}
	return PerFrameReport{
		Frames:   shape.Frames,
		Messages: shape.Frames * int64(shape.Records),
		Bytes:    shape.Frames * int64(shape.frameSize()),
		Elapsed:  elapsed,
	}, nil
}

// perFrameRuns makes each producer's frames: as many as fit one write, sent over and
// over.
func perFrameRuns(s PerFrameShape) ([][]byte, error) {
	payloads, err := NewPayloads(1, s.Size)
	if err != nil {
		return nil, err
	}
	n := max(1, loopbackChunk/s.frameSize())
	if s.Window > 0 {
		n = min(n, s.Window)
	}
	runs := make([][]byte, s.Producers)
	for producer := range runs {
		run := make([]byte, 0, n*s.frameSize())
		for frame := range n {
			var header [perFrameHeader]byte
			header[0] = perFrameMagic
			binary.BigEndian.PutUint32(header[21:], uint32(s.frameSize()-perFrameHeader))
			binary.BigEndian.PutUint32(header[25:], uint32(s.Records))
			run = append(run, header[:]...)
			for record := range s.Records {
				run = binary.BigEndian.AppendUint64(run, uint64(s.Size))
				value := run[len(run) : len(run)+s.Size]
				payloads.Fill(value, uint32(producer), uint64(frame*s.Records+record))
				run = run[:len(run)+s.Size]
			}
		}
		runs[producer] = run
	}
	return runs, nil
}

func dialPerFrame(ctx context.Context, addr string, kind byte) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write([]byte{kind}); err != nil {
		closeQuietly(conn)
		return nil, err
	}
	return conn, nil
}

// perFrameProducer is one connection of a load. One goroutine writes frames, another
// reads acks.
type perFrameProducer struct {
	// immutable
	conn   net.Conn
	run    []byte
	shape  PerFrameShape
	frames int64
	moved  chan struct{} // holds one token when acked has grown since the writer looked
	ended  chan struct{} // closed when no more acks will come

	// atomic, published by the ack reader
	acked atomic.Int64
}

func (p *perFrameProducer) produce(ctx context.Context) error {
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
	written := p.writeFrames()
	if written != nil {
		closeQuietly(p.conn)
	}
	err := <-read
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(err, written)
}

func (p *perFrameProducer) writeFrames() error {
	size := int64(p.shape.frameSize())
	most := int64(len(p.run)) / size
	for sent := int64(0); sent < p.frames; {
		n := min(most, p.frames-sent)
		if p.shape.Window > 0 {
			free := int64(p.shape.Window) - (sent - p.acked.Load())
			if free == 0 {
				select {
				case <-p.moved:
				case <-p.ended:
					return nil // the reader knows why
				}
				continue
			}
			n = min(n, free)
		}
		if _, err := p.conn.Write(p.run[:n*size]); err != nil {
			return err
		}
		sent += n
	}
	return nil
}

func (p *perFrameProducer) readAcks() error {
	buf := make([]byte, 64<<10)
	held := 0
	next := uint64(0) // least offset the next ack may carry
	for got := int64(0); got < p.frames; {
		n, err := p.conn.Read(buf[held:])
		if err != nil {
			return fmt.Errorf("after %d of %d acks: %w", got, p.frames, err)
		}
		held += n
		at := 0
		for ; held-at >= perFrameAck; at += perFrameAck {
			offset := binary.BigEndian.Uint64(buf[at+1:])
			if buf[at] != 0 {
				return fmt.Errorf("%w: frame %d of a producer", ErrRefused, got)
			}
			if offset < next || got == p.frames {
				return fmt.Errorf("%w: ack %d of %d gives offset %d, want %d or more", ErrBadFrame, got, p.frames, offset, next)
			}
			next = offset + uint64(p.shape.Records)
			got++
		}
		held = copy(buf, buf[at:held])
		p.acked.Store(got)
		select {
		case p.moved <- struct{}{}:
		default:
		}
	}
	return nil
}

// PerFrameDrain reads the first frames of the log as one consumer, waiting for those
// yet to come, and checks that their offsets follow each other.
//
// Errors: ErrBadFrame for a frame that cannot be or does not follow the one before;
// the error of the context when it ends.
func PerFrameDrain(ctx context.Context, addr string, frames int64) (PerFrameReport, error) {
	began := time.Now()
	conn, err := dialPerFrame(ctx, addr, perFrameConsume)
	if err != nil {
		return PerFrameReport{}, err
	}
	defer closeQuietly(conn)
	stop := context.AfterFunc(ctx, func() { closeQuietly(conn) })
	defer stop()
	// Room for the largest frame and a full read after it.
	buf := make([]byte, perFrameHeader+PerFrameMaxFrame+loopbackChunk)
	var r PerFrameReport
	held := 0
	for r.Frames < frames {
		n, err := conn.Read(buf[held:])
		if err != nil {
			if ctx.Err() != nil {
				return r, context.Cause(ctx)
			}
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return r, fmt.Errorf("after %d of %d frames: %w", r.Frames, frames, err)
		}
		used, err := r.walk(buf[:held+n], frames)
		if err != nil {
			return r, err
		}
		held = copy(buf, buf[used:held+n])
	}
	r.Elapsed = time.Since(began)
	return r, nil
}

// walk counts the whole frames at the start of b, at most up to frames in total, and
// returns their size.
func (r *PerFrameReport) walk(b []byte, frames int64) (used int, err error) {
	for r.Frames < frames && len(b)-used >= perFrameHeader {
		h := b[used:]
		size, err := perFrameSize(h)
		if err != nil {
			return used, fmt.Errorf("frame %d: %w", r.Frames, err)
		}
		if offset := binary.BigEndian.Uint64(h[9:]); offset != uint64(r.Messages) {
			return used, fmt.Errorf("%w: frame %d has offset %d, want %d", ErrBadFrame, r.Frames, offset, r.Messages)
		}
		if len(h) < size {
			break
		}
		r.Frames++
		r.Messages += int64(binary.BigEndian.Uint32(h[25:]))
		r.Bytes += int64(size)
		used += size
	}
	return used, nil
}
