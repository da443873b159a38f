package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-mq/millrace/protocol"
)

// stateName is the name of the checkpoint of what the frames up to index have built.
func stateName(index uint64) string { return fmt.Sprintf("%020d%s", index, stateSuffix) }

// SaveCheckpoint keeps body as what the control records up to index have built. The one before
// it is kept too.
//
// Durability: log and checkpoint are durable when it returns nil; so a checkpoint never speaks
// of frames that a power cut can take.
func (l *Log) SaveCheckpoint(index uint64, body []byte) error {
	if err := l.Sync(context.Background()); err != nil {
		return err
	}
	if end := l.Durable().Index; index > end {
		panic(fmt.Sprintf("storage: checkpoint of index %d in a log of %d", index, end))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := WriteSealed(l.fs, stateName(index), "state", Version, body); err != nil {
		return err
	}
	list, err := l.checkpoints()
	if err != nil {
		return err
	}
	for _, old := range list[min(2, len(list)):] {
		if err := l.fs.Remove(stateName(old)); err != nil {
			return err
		}
	}
	return ignoreMissing(l.fs.Remove(stateName(index) + ".prev"))
}

// LoadCheckpoint returns the newest checkpoint that can be read; index 0 when there is none:
// then everything is built from the log.
func (l *Log) LoadCheckpoint() (index uint64, body []byte, err error) {
	list, err := l.checkpoints()
	if err != nil {
		return 0, nil, err
	}
	end := l.Written().Index
	for _, index := range list {
		body, _, err := readSealed(l.fs, stateName(index), "state", Version)
		var damaged *SealedError
		switch {
		case errors.Is(err, ErrNewer):
			return 0, nil, err
		case errors.As(err, &damaged), err == nil && index > end:
			continue
		case err != nil:
			return 0, nil, err
		}
		return index, body, nil
	}
	return 0, nil, nil
}

// checkpoints lists the indexes of the .state files, newest first.
func (l *Log) checkpoints() ([]uint64, error) {
	list, err := l.fs.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var found []uint64
	for _, e := range list {
		s, ok := strings.CutSuffix(e.Name, stateSuffix)
		if index, err := strconv.ParseUint(s, 10, 64); ok && err == nil && stateName(index) == e.Name {
			found = append(found, index)
		}
	}
	slices.Reverse(found)
	return found, nil
}

// newestCheckpoint is the highest index of a readable checkpoint: it was written when all up to
// there was durable.
func (r *recovery) newestCheckpoint() (index uint64) {
	for name := range r.files {
		s, ok := strings.CutSuffix(name, stateSuffix)
		i, err := strconv.ParseUint(s, 10, 64)
		if !ok || err != nil || i <= index {
			continue
		}
		if _, _, err := readSealed(r.log.fs, name, "state", Version); err == nil {
			index = i
		}
	}
	return index
}

// Controls calls f for every control record with an index above from, in order. Blocks that the
// index knows to hold only messages are not read.
//
// Ownership: the frame is valid during the call. Errors: those of f and the disk; a damaged
// control record is passed over like any damage.
func (l *Log) Controls(from uint64, f func(protocol.Frame) error) error {
	end := l.writtenMark()
	for _, s := range *l.segments.Load() {
		if e := s.sealed.Load(); e != nil && e.Index <= from || s.firstIndex > end.Index {
			continue
		}
		if err := s.acquire(); err != nil {
			if errors.Is(err, errGone) || errors.Is(err, fs.ErrNotExist) { // removed, or missing and known to be
				continue
			}
			return err
		}
		err := s.controls(from, s.limit(end), f)
		s.release()
		if err != nil {
			return err
		}
	}
	return nil
}

// controls reads the control blocks of one segment.
func (s *segment) controls(from uint64, limit int64, f func(protocol.Frame) error) error {
	sc := newScan(s.file, limit, s.base, s.firstIndex)
	_, first, err := s.floor(byIndex, from)
	if err != nil {
		return err
	}
	for i := max(0, first); i < int(s.index.count.Load()); i++ {
		e, err := s.index.at(i)
		if err != nil {
			return err
		}
		if e.flags&blockControl == 0 || e.pos >= limit {
			continue
		}
		to := int64(math.MaxInt64)
		if next, err := s.index.at(i + 1); err == nil {
			to = next.pos
		}
		if err := s.controlBlock(sc, e.pos, min(to, limit), from, f); err != nil {
			return err
		}
	}
	return nil
}

func (s *segment) controlBlock(sc *scan, pos, limit int64, from uint64, f func(protocol.Frame) error) error {
	h := hopper{file: s.file, pos: pos, limit: limit, damage: s.damaged()}
	defer h.done()
	for h.next() {
		if h.head.RecordCount() != 0 {
			continue
		}
		frame, why, err := sc.frameAt(h.pos)
		if err != nil {
			return err
		}
		if why != nil { // damage that nobody had met yet
			s.log.store.noteError(&CorruptError{Path: s.path(), Pos: h.pos, From: h.head.Offset(), To: h.head.Offset(), Err: why})
			continue
		}
		if frame.Index() <= from {
			continue
		}
		if err := f(frame); err != nil {
			return err
		}
	}
	if errors.Is(h.err, errIndex) { // likewise; what follows in the block is unreachable
		s.log.store.noteError(h.err)
		return nil
	}
	return h.err
}
