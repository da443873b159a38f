package server

import (
	"sync"

	"github.com/millrace-mq/millrace/storage"
)

// spares keeps memory that connections use for a moment, so that neither a busy one allocates
// nor an idle one holds it.
//
// Bounds: spareChunks chunks, spareBatches batches of at most maxBatch runs, spareFrames buffers
// of at most maxFrames bytes.
type spares struct {
	mu      sync.Mutex
	chunks  []*ackChunk
	batches []*batch
	buffers [][]byte
}

const (
	spareChunks  = 1024
	spareBatches = 64
	spareFrames  = 256
	minFrames    = 4 << 10  // bytes
	maxFrames    = 64 << 10 // bytes
	maxBatch     = 4096     // runs of one append
	maxTouched   = 64       // handles with runs that are not appended yet
)

// batch is the runs that one read brought for one handle.
type batch struct {
	entries []storage.Entry // verified runs
	runs    []run           // all runs, in order, refused ones too
	sync    bool            // one of them must become durable
}

func (s *spares) chunk() *ackChunk {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := len(s.chunks) - 1; last >= 0 {
		c := s.chunks[last]
		s.chunks = s.chunks[:last]
		return c
	}
	return new(ackChunk)
}

func (s *spares) keepChunk(c *ackChunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.chunks) < spareChunks {
		s.chunks = append(s.chunks, c)
	}
}

func (s *spares) batch() *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := len(s.batches) - 1; last >= 0 {
		b := s.batches[last]
		s.batches = s.batches[:last]
		return b
	}
	return new(batch)
}

func (s *spares) keepBatch(b *batch) {
	clear(b.entries)
	clear(b.runs)
	b.entries, b.runs, b.sync = b.entries[:0], b.runs[:0], false
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.batches) < spareBatches {
		s.batches = append(s.batches, b)
	}
}

// frames is an empty buffer for control frames.
func (s *spares) frames() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := len(s.buffers) - 1; last >= 0 {
		b := s.buffers[last]
		s.buffers = s.buffers[:last]
		return b
	}
	return make([]byte, 0, minFrames)
}

func (s *spares) keepFrames(b []byte) {
	if cap(b) == 0 || cap(b) > maxFrames {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.buffers) < spareFrames {
		s.buffers = append(s.buffers, b[:0])
	}
}
