package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// The per-frame method moves one frame at a time: on the way in it allocates a header
// and a payload, copies both into a buffer to write, and issues one write to the log,
// one to the index and one to the socket; on the way out it reads a header and then
// copies the frame through a small buffer with a read and a write. PerFrameServe is
// a broker of that kind, as small as the method allows, and serves as the yardstick
// for ratios in the same run on the same machine.
//
// A connection opens with one byte, 'P' to produce or 'C' to consume. Frames in both
// directions and in the log, big endian:
//
//	0       1              9           17           21               25                29
//	| 1 u8  | timestamp u64 | offset u64 | keySize u32 | payloadSize u32 | recordCount u32 | key | payload |
//
// Each frame produced is answered by 9 bytes: 0x00 and the offset it got, or 0xFF and
// zeros, after which the broker hangs up. A consumer gets all frames from the first
// on, and then those to come. An index entry is 16 bytes: offset u64, position u64.
const (
	perFrameHeader = 29
	perFrameMagic  = 1
	perFrameEntry  = 16
	perFrameAck    = 9

	perFrameProduce = 'P'
	perFrameConsume = 'C'

	// PerFrameMaxFrame bounds key and payload of one frame together, bytes.
	PerFrameMaxFrame = 1 << 20
	// PerFrameMaxConns bounds the connections served at once; more wait to be
	// accepted.
	PerFrameMaxConns = 64
)

// perFrameSize returns the size of the frame that starts with header h.
//
// Errors: ErrBadFrame for another magic, for more than PerFrameMaxFrame bytes, and for
// no records.
func perFrameSize(h []byte) (int, error) {
	if h[0] != perFrameMagic {
		return 0, fmt.Errorf("%w: magic 0x%02x, want 0x%02x", ErrBadFrame, h[0], perFrameMagic)
	}
	body := uint64(binary.BigEndian.Uint32(h[17:])) + uint64(binary.BigEndian.Uint32(h[21:]))
	if body > PerFrameMaxFrame {
		return 0, fmt.Errorf("%w: key and payload of %d bytes, limit %d", ErrBadFrame, body, PerFrameMaxFrame)
	}
	if binary.BigEndian.Uint32(h[25:]) == 0 {
		return 0, fmt.Errorf("%w: no records", ErrBadFrame)
	}
	return perFrameHeader + int(body), nil
}

// PerFrameServe runs the per-frame broker over the new files log and index in dir
// until ctx ends, and then returns nil. It calls ready once with the address it
// listens on.
//
// Durability: none; frames are acknowledged once written.
//
// Bounds: PerFrameMaxConns connections of two frames' memory each, 128 MiB.
//
// Errors: the system's, for files that exist already among others. After a failed
// write the broker stops.
func PerFrameServe(ctx context.Context, addr, dir string, ready func(addr string)) (err error) {
	log, err := openPerFrameLog(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.close()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	// Closing twice, here and when ctx ends, is harmless and its error says so.
	stop := context.AfterFunc(ctx, func() { closeQuietly(listener) })
	defer stop()
	defer closeQuietly(listener)
	defer context.AfterFunc(ctx, log.release)()
	ready(listener.Addr().String())

	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel(nil)
	slots := make(chan struct{}, PerFrameMaxConns)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return failureOf(ctx)
		}
		conn, err := listener.Accept()
		if err != nil {
			return errors.Join(failureOf(ctx), unlessClosed(err))
		}
		serving.Go(func() {
			defer func() { <-slots }()
			if err := log.attend(ctx, conn); err != nil {
				cancel(err)
			}
		})
	}
}

// failureOf returns why a broker stopped, nil if it was asked to.
func failureOf(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

func unlessClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// closeQuietly closes what may be closed already and holds no data of ours.
func closeQuietly(c io.Closer) {
	if err := c.Close(); err != nil {
		return
	}
}

// perFrameLog is the one log of a per-frame broker.
type perFrameLog struct {
	// immutable
	data  *os.File
	index *os.File

	// guarded by mu
	mu     sync.Mutex
	grown  *sync.Cond // end or released changed, or a consumer left
	next   uint64     // offset of the next frame
	end    int64      // bytes in data
	failed error      // of the first append that failed; final
	freed  bool       // consumers at the end must leave
}

func openPerFrameLog(dir string) (*perFrameLog, error) {
	open := func(name string) (*os.File, error) {
		return os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_RDWR|os.O_APPEND, 0o600)
	}
	data, err := open("log")
	if err != nil {
		return nil, err
	}
	index, err := open("index")
	if err != nil {
		return nil, errors.Join(err, data.Close())
	}
	l := &perFrameLog{data: data, index: index}
	l.grown = sync.NewCond(&l.mu)
	return l, nil
}

func (l *perFrameLog) close() error { return errors.Join(l.data.Close(), l.index.Close()) }

// release sends consumers that wait at the end away.
func (l *perFrameLog) release() {
	l.mu.Lock()
	l.freed = true
	l.mu.Unlock()
	l.grown.Broadcast()
}

// attend serves one connection until its peer leaves or ctx ends. It returns only
// failures of the log; a peer's failure ends its connection.
func (l *perFrameLog) attend(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { closeQuietly(conn) })
	defer stop()
	defer closeQuietly(conn)
	var kind [1]byte
	if _, err := io.ReadFull(conn, kind[:]); err != nil {
		return nil
	}
	switch kind[0] {
	case perFrameProduce:
		return l.ingest(conn)
	case perFrameConsume:
		return l.serve(conn)
	}
	return nil
}

// ingest takes frames one by one. The allocations, the copy and the three writes of
// each are the method, not an oversight.
func (l *perFrameLog) ingest(conn net.Conn) error {
	for {
		header := make([]byte, perFrameHeader)
		if _, err := io.ReadFull(conn, header); err != nil {
			return nil
		}
		ack := make([]byte, perFrameAck)
		size, err := perFrameSize(header)
		if err != nil {
			ack[0] = 0xff
			// The peer is hung up on either way; whether it reads the refusal is its affair.
			if _, err := conn.Write(ack); err != nil {
				return nil
			}
			return nil
		}
		body := make([]byte, size-perFrameHeader)
		if _, err := io.ReadFull(conn, body); err != nil {
			return nil
		}
		offset, err := l.append(header, body)
		if err != nil {
			return err
		}
		binary.BigEndian.PutUint64(ack[1:], offset)
		if _, err := conn.Write(ack); err != nil {
			return nil
		}
	}
}

func (l *perFrameLog) append(header, body []byte) (offset uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return 0, l.failed
	}
	offset = l.next
	frame := make([]byte, len(header)+len(body))
	copy(frame, header)
	binary.BigEndian.PutUint64(frame[1:], uint64(time.Now().UnixNano()))
	binary.BigEndian.PutUint64(frame[9:], offset)
	copy(frame[perFrameHeader:], body)
	entry := make([]byte, perFrameEntry)
	binary.BigEndian.PutUint64(entry, offset)
	binary.BigEndian.PutUint64(entry[8:], uint64(l.end))
	if _, err = l.data.Write(frame); err == nil {
		_, err = l.index.Write(entry)
	}
	if err != nil {
		l.failed = fmt.Errorf("append offset %d at pos %d: %w", offset, l.end, err)
		return 0, l.failed
	}
	l.next += uint64(binary.BigEndian.Uint32(header[25:]))
	l.end += int64(len(frame))
	l.grown.Broadcast()
	return offset, nil
}

// serve sends frames one by one. A section of a file is nothing that sendfile can take,
// so io.CopyN allocates a buffer and reads and writes: that is the method.
func (l *perFrameLog) serve(conn net.Conn) error {
	gone := false // guarded by l.mu
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		// A consumer has nothing more to say: whatever the read returns, it left.
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			closeQuietly(conn)
		}
		l.mu.Lock()
		gone = true
		l.mu.Unlock()
		l.grown.Broadcast()
	}()
	defer func() {
		closeQuietly(conn)
		<-watched
	}()
	for pos := int64(0); l.await(pos, &gone); {
		header := make([]byte, perFrameHeader)
		if _, err := l.data.ReadAt(header, pos); err != nil {
			return fmt.Errorf("header at pos %d: %w", pos, err)
		}
		size, err := perFrameSize(header)
		if err != nil {
			return fmt.Errorf("frame at pos %d: %w", pos, err)
		}
		if _, err := io.CopyN(conn, io.NewSectionReader(l.data, pos, int64(size)), int64(size)); err != nil {
			return nil
		}
		pos += int64(size)
	}
	return nil
}

// await waits until there is a frame at pos and reports false if there will be none
// for this consumer.
func (l *perFrameLog) await(pos int64, gone *bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.end <= pos && !l.freed && !*gone {
		l.grown.Wait()
	}
	return l.end > pos && !l.freed && !*gone
}
