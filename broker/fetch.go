package broker

import (
	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage"
)

// Resolve turns a position into an offset of the partition.
//
// Errors: *storage.RangeError for an offset before the first or behind the visible end.
func (p *Partition) Resolve(pos protocol.Position) (uint64, error) {
	log, err := p.ready()
	if err != nil {
		return 0, err
	}
	switch pos.Kind {
	case protocol.PositionStart:
		return log.Start(), nil
	case protocol.PositionEnd:
		return log.Visible().Offset, nil
	case protocol.PositionLast:
		start, end := log.Start(), log.Visible().Offset
		if end < start || pos.Value > end-start {
			return start, nil
		}
		return end - pos.Value, nil
	case protocol.PositionTime:
		offset, err := log.SeekTime(int64(min(pos.Value, 1<<63-1)))
		if err != nil {
			return 0, p.at(err)
		}
		return offset, nil
	case protocol.PositionOffset:
		if _, err := log.Seek(pos.Value); err != nil {
			return 0, p.at(err)
		}
		return pos.Value, nil
	}
	return 0, p.at(&protocol.Error{Code: protocol.BadRequest, Detail: "position of unknown kind", Actual: uint64(pos.Kind)})
}

// ResolveStop turns the position where a subscription is to end into an offset. An offset may
// lie before the start or behind the end.
func (p *Partition) ResolveStop(pos protocol.Position) (uint64, error) {
	if pos.Kind == protocol.PositionOffset {
		return pos.Value, nil
	}
	return p.Resolve(pos)
}

// Seek returns a cursor whose first section holds offset.
//
// Errors: *storage.RangeError, *storage.CorruptError.
func (p *Partition) Seek(offset uint64) (storage.Cursor, error) {
	log, err := p.ready()
	if err != nil {
		return storage.Cursor{}, err
	}
	c, err := log.Seek(offset)
	if err != nil {
		return c, p.at(err)
	}
	return c, nil
}

// Next returns the next stretch of whole frames at c, at most about size bytes but at least
// one frame, and moves c behind it. A section of size 0 means that nothing is visible there
// now.
//
// Ownership: the caller releases the section. Errors: *storage.CorruptError, *storage.RangeError
// when retention overtook the cursor, ErrDeleted, ErrClosed.
func (p *Partition) Next(c *storage.Cursor, stop uint64, size int64) (storage.Section, error) {
	log, err := p.ready()
	if err != nil {
		return storage.Section{}, err
	}
	section, err := log.Next(c, stop, size)
	if err != nil {
		return section, p.at(err)
	}
	return section, nil
}
