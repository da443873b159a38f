package inspect

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/millrace-mq/millrace/cmd/millrace/cli"
	"github.com/millrace-mq/millrace/cmd/millrace/record"
	"github.com/millrace-mq/millrace/protocol"
)

// An index file, as package storage writes it:
//
//	header 32: magic "MRIX" | version u32 | segment id u64 | base offset u64 | first index u64
//	entry  24: relOffset u32 | pos u32 | timestamp u64 | relIndex u32 | flags u32
//
// Zeros follow the last entry; of all entries only the first has pos 0.
const (
	indexMagic      = "MRIX"
	indexHeaderSize = 32
	indexEntrySize  = 24
)

// indexHead is the header of an index file.
type indexHead struct {
	version     uint32
	segment     uint64
	base, first uint64
}

// indexEntry is one entry with absolute numbers.
type indexEntry struct {
	offset, index, timestamp uint64
	pos                      int64
	flags                    uint32
}

func decodeIndexHead(b []byte) (indexHead, error) {
	if len(b) < indexHeaderSize || string(b[:4]) != indexMagic {
		return indexHead{}, fmt.Errorf("no header of an index (%q)", b[:min(4, len(b))])
	}
	return indexHead{binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:]), binary.BigEndian.Uint64(b[24:])}, nil
}

func (h indexHead) entry(b []byte) indexEntry {
	return indexEntry{
		offset:    h.base + uint64(binary.BigEndian.Uint32(b)),
		pos:       int64(binary.BigEndian.Uint32(b[4:])),
		timestamp: binary.BigEndian.Uint64(b[8:]),
		index:     h.first + uint64(binary.BigEndian.Uint32(b[16:])),
		flags:     binary.BigEndian.Uint32(b[20:]),
	}
}

// dumpIndex shows the entries of an index and compares each with its frame.
func dumpIndex(ctx context.Context, c *cli.Call, f *os.File, size int64, o Options) (err error) {
	w := fileWindow{file: f, size: size}
	head, err := w.bytes(0, indexHeaderSize)
	if err != nil {
		return err
	}
	h, err := decodeIndexHead(head)
	if err != nil {
		return cli.WithCode(cli.ExitDamage, fmt.Errorf("%s: %w", f.Name(), err))
	}
	log, err := openLogOf(f.Name())
	if err != nil {
		return err
	}
	if log.file != nil {
		defer func() { err = errors.Join(err, log.file.Close()) }()
	}
	out := c.Rows("entry", "offset", "index", "pos", "timestamp", "flags", "log")
	shown, bad := int64(0), 0
	var before *indexEntry
	for i := int64(0); o.Most == 0 || shown < o.Most; i++ {
		b, err := w.bytes(indexHeaderSize+i*indexEntrySize, indexEntrySize)
		if err != nil {
			return err
		}
		if len(b) < indexEntrySize || ctx.Err() != nil {
			break
		}
		e := h.entry(b)
		if e.pos == 0 && (i > 0 || log.empty()) {
			break
		}
		verdict := log.compare(e, before)
		before = &e
		if verdict != agrees && log.file != nil {
			bad++
		}
		if e.offset < o.At {
			continue
		}
		shown++
		out.Add(i, e.offset, e.index, e.pos, record.RFC3339(e.timestamp), flagsText(e.flags), verdict)
	}
	if err := errors.Join(out.Flush(), ctx.Err()); err != nil {
		return err
	}
	c.Notice("segment %d from offset %d, index %d; version %d; %s shown", h.segment, h.base, h.first, h.version, entries(shown))
	if bad > 0 {
		return cli.WithCode(cli.ExitDamage, fmt.Errorf("%s: %s not as the log has it; a start rebuilds the index", f.Name(), entries(int64(bad))))
	}
	return nil
}

func entries(n int64) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}

func flagsText(flags uint32) string {
	switch flags {
	case 0:
		return "-"
	case 1:
		return "control"
	}
	return fmt.Sprintf("0x%x", flags)
}

const agrees = "agrees"

// indexedLog is the log that an index belongs to.
type indexedLog struct {
	file *os.File // nil when there is none
	size int64
}

// openLogOf opens the log beside an index; one that is missing is no error.
func openLogOf(index string) (indexedLog, error) {
	f, err := os.Open(strings.TrimSuffix(index, indexSuffix) + logSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return indexedLog{}, nil
	}
	if err != nil {
		return indexedLog{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return indexedLog{}, errors.Join(err, f.Close())
	}
	return indexedLog{f, info.Size()}, nil
}

// empty tells that the log begins with no frame, so that a first entry of zeros is none.
func (l indexedLog) empty() bool {
	if l.file == nil {
		return false
	}
	first := make([]byte, 1)
	n, err := l.file.ReadAt(first, 0)
	return n == 0 || err != nil || first[0] == 0
}

// compare tells whether the frame at an entry's position is the one that the
// entry describes, and whether the entry follows the one before.
func (l indexedLog) compare(e indexEntry, before *indexEntry) string {
	if before != nil && (e.pos <= before.pos || e.offset < before.offset || e.index <= before.index || e.timestamp < before.timestamp) {
		return "goes back behind the entry before"
	}
	if l.file == nil {
		return "no log beside the index"
	}
	head := make([]byte, protocol.HeaderSize)
	n, err := l.file.ReadAt(head, e.pos)
	if err != nil && !errors.Is(err, io.EOF) {
		return err.Error()
	}
	size, err := protocol.SizeStored(head[:n], protocol.MaxDataFrame)
	if err != nil || size == 0 || e.pos+int64(size) > l.size {
		return "no frame at this position"
	}
	tail := make(protocol.Frame, protocol.TailSize)
	if _, err := l.file.ReadAt(tail, e.pos+int64(size)-protocol.TailSize); err != nil {
		return err.Error()
	}
	h := protocol.HeaderOf(head)
	if h.Offset() != e.offset || h.Timestamp() != e.timestamp || tail.Index() != e.index {
		return fmt.Sprintf("the frame has offset %d, index %d, timestamp %s", h.Offset(), tail.Index(), record.RFC3339(h.Timestamp()))
	}
	return agrees
}
