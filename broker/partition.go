package broker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage"
)

// Partition is one log of a topic, the offsets that groups committed in it, and those who wait
// for its ends to move.
//
// Ownership: safe for concurrent use. The broker opens and closes it.
type Partition struct {
	// immutable
	topic  *Topic
	number uint32
	dir    string // below the data directory
	log    *storage.Log
	opened error // why log is nil

	// atomic, published by the broker
	hidden atomic.Bool // records are visible only when durable
	gone   atomic.Pointer[error]

	// atomic, published by the log's failure callback
	failed atomic.Pointer[error]

	tail    waitList // for the visible end
	durable waitList // for the durable end

	commits commits
}

// open opens the partition's log, recovers it and the committed offsets.
func (p *Partition) open(store *storage.Store, s *Settings) error {
	p.hidden.Store(s.Durable())
	log, report, err := store.OpenLog(p.dir, p.logOptions(s))
	if err != nil {
		return err
	}
	p.topic.broker.reportRecovery(p, &report)
	p.log = log
	if err := p.commits.restore(log); err != nil {
		p.log = nil
		return errors.Join(err, log.Close())
	}
	return nil
}

// reopen opens the log of a partition that the catalog names. One that was made before must
// still be there: an empty log in its place would hide the loss and give offsets out twice.
func (p *Partition) reopen(store *storage.Store, s *Settings) error {
	if int(p.number) < p.topic.made {
		list, err := store.FS().ReadDir(p.dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("directory %s is gone, and its records with it; restore it, or delete the topic: %w", p.dir, fs.ErrNotExist)
		case err != nil:
			return err
		case len(list) == 0:
			return fmt.Errorf("directory %s is empty, its records are gone; restore it, or delete the topic: %w", p.dir, fs.ErrNotExist)
		}
	}
	return p.open(store, s)
}

func (p *Partition) logOptions(s *Settings) storage.LogOptions {
	o := s.logOptions()
	o.OnDurable = p.onDurable
	o.OnFail = p.onFail
	return o
}

// set applies changed settings.
func (p *Partition) set(s *Settings) {
	if p.log == nil {
		return
	}
	p.log.SetOptions(p.logOptions(s))
	p.hidden.Store(s.Durable())
	p.tail.wake(^uint64(0)) // the visible end may have jumped
}

// onDurable runs in the disk's syncer after the durable end moved.
func (p *Partition) onDurable(end storage.End) {
	p.durable.wake(end.Index)
	if p.hidden.Load() {
		p.tail.wake(^uint64(0))
	}
}

// onFail runs once when the disk failed under the log.
func (p *Partition) onFail(err error) {
	err = p.at(err)
	p.failed.Store(&err)
	p.durable.wake(^uint64(0))
	p.tail.wake(^uint64(0))
	p.topic.broker.storageFailed(err)
}

// at gives err its place.
func (p *Partition) at(err error) error {
	if gone := p.gone.Load(); gone != nil && errors.Is(err, storage.ErrClosed) {
		err = *gone
	}
	return &PlaceError{Topic: p.topic.name, Partition: int(p.number), Err: err}
}

// unavailable says why there is no log.
func (p *Partition) unavailable() error {
	return p.at(fmt.Errorf("%w: %w", ErrUnavailable, p.opened))
}

// ready returns the log, or why there is none to use.
func (p *Partition) ready() (*storage.Log, error) {
	if p.log == nil {
		return nil, p.unavailable()
	}
	if gone := p.gone.Load(); gone != nil {
		return nil, p.at(*gone)
	}
	return p.log, nil
}

// Topic returns the partition's topic.
func (p *Partition) Topic() *Topic { return p.topic }

// Number is the partition's number in its topic, from 0.
func (p *Partition) Number() uint32 { return p.number }

// Gone returns why the partition is no longer served (ErrDeleted, ErrClosed), nil while it is.
func (p *Partition) Gone() error {
	if gone := p.gone.Load(); gone != nil {
		return p.at(*gone)
	}
	return nil
}

// Start is the first offset that is kept.
func (p *Partition) Start() uint64 {
	if p.log == nil {
		return 0
	}
	return p.log.Start()
}

// Visible is the end that consumers see.
func (p *Partition) Visible() storage.End {
	if p.log == nil {
		return storage.End{}
	}
	return p.log.Visible()
}

// Epoch rises whenever the log has lost a suffix.
func (p *Partition) Epoch() uint32 {
	if p.log == nil {
		return 0
	}
	return p.log.Epoch()
}

// DurableIndex is the index up to which the log is durable.
//
// Errors: why it will not move any more: the disk failed, the topic was deleted, the broker
// closed. What was durable before is still told.
func (p *Partition) DurableIndex() (uint64, error) {
	if p.log == nil {
		return 0, p.unavailable()
	}
	index := p.log.Durable().Index
	if failed := p.failed.Load(); failed != nil {
		return index, *failed
	}
	return index, p.Gone()
}

// AwaitDurable parks w until the durable end reaches index. It is false when that is so
// already or the end will not move any more; DurableIndex says which.
func (p *Partition) AwaitDurable(w *Waiter, index uint64) (parked bool, err error) {
	ok, err := p.durable.park(w, index)
	if !ok || err != nil {
		return false, err
	}
	if now, err := p.DurableIndex(); now >= index || err != nil {
		return !p.durable.leave(w), nil // not ours any more: it is being woken
	}
	return true, nil
}

// AwaitVisible parks w until the visible end moves beyond seen. It is false when it has done so
// already or will not move any more.
func (p *Partition) AwaitVisible(w *Waiter, seen storage.End) (parked bool, err error) {
	ok, err := p.tail.park(w, 0)
	if !ok || err != nil {
		return false, err
	}
	if p.Visible().Index > seen.Index || p.gone.Load() != nil {
		return !p.tail.leave(w), nil
	}
	return true, nil
}

// LeaveVisible takes w out of the list that AwaitVisible put it in. True means that Wake will
// not be called any more.
func (p *Partition) LeaveVisible(w *Waiter) bool { return p.tail.leave(w) }

// LeaveDurable takes w out of the list that AwaitDurable put it in. True means that Wake will
// not be called any more.
func (p *Partition) LeaveDurable(w *Waiter) bool { return p.durable.leave(w) }

// Waiters is the number of parked waiters, for tests and numbers.
func (p *Partition) Waiters() int { return p.tail.len() + p.durable.len() }

// Info describes the partition.
func (p *Partition) Info() protocol.PartitionInfo {
	if p.log == nil {
		return protocol.PartitionInfo{State: protocol.PartitionFailed}
	}
	state, _ := p.log.State()
	size, segments := p.log.Size()
	return protocol.PartitionInfo{State: state, Epoch: p.log.Epoch(), Start: p.log.Start(), End: p.log.Visible().Offset,
		Durable: p.log.Durable().Offset, Bytes: uint64(size), Segments: uint32(segments), Newest: uint64(p.log.Newest())}
}

// retire ends the partition for everybody: nothing is appended any more, and waiters are woken
// to find out why.
func (p *Partition) retire(why error) {
	p.gone.CompareAndSwap(nil, &why)
	p.tail.end()
	p.durable.end()
}

// close makes everything durable, saves what groups committed and closes the log. Pending
// acknowledgements complete before the partition is retired.
func (p *Partition) close(why error) error {
	if p.log == nil {
		p.retire(why)
		return nil
	}
	err := p.log.Sync(context.Background())
	if err == nil && why != ErrDeleted {
		err = p.commits.save(p.log)
	}
	err = errors.Join(err, p.log.Close())
	p.retire(why)
	if err == nil || errors.Is(err, storage.ErrFailed) { // a failure was reported when it happened
		return nil
	}
	return p.at(err)
}

// commits is the table of committed offsets. It is rebuilt at open from the last checkpoint
// and the OFFSET records behind it.
type commits struct {
	mu     sync.Mutex // also held over the append of an OFFSET record, so that table and log agree in order
	groups map[string]committed
	index  uint64 // of the newest OFFSET record in groups
	saved  uint64 // index that the last checkpoint covers
	size   int64  // of the log when it was saved
}

type committed struct {
	offset uint64
	epoch  uint32
}
