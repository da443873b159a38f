package broker

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace-mq/millrace/protocol"
	"github.com/millrace-mq/millrace/storage"
	"github.com/millrace-mq/millrace/storage/vfs"
)

// Options say where a broker keeps its data and within which bounds.
type Options struct {
	FS  vfs.FS       // the data directory; required. Not closed by the broker
	Now func() int64 // ns since 1970; required
	Log *slog.Logger // nil = discard

	// Elapsed is the ns that passed, whatever the clock says: retention by age stops while the
	// clock is ahead of it. nil = the clock is believed.
	Elapsed func() int64

	Holder              string        // written into the lock, so that a second broker can name the first
	WriteBehind         int64         // bytes; 0 = storage's default
	WriteBehindInterval time.Duration // 0 = storage's default
	ParallelSyncs       int           // 0 = storage's default
	OpenFiles           int           // sealed segment files kept open; 0 = storage's default

	Topic      protocol.TopicSettings // what topics get that do not say; the rest is the table's default
	AutoCreate func(name string) bool // topics that a first use may create; nil = all
	Topics     int                    // most topics; 0 = 10,000
	Partitions int                    // most partitions of all topics; 0 = 100,000

	// OnStorageError is called for each partition under which the disk failed, from the
	// goroutine that saw it. It must not block on the broker. nil = the partition serves reads
	// only and nothing else happens.
	OnStorageError func(error)

	Upkeep time.Duration // between two rounds of retention and checkpoints; 0 = 10 s
}

func (o *Options) complete() {
	if o.FS == nil || o.Now == nil {
		panic("broker: Options without FS or Now")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.AutoCreate == nil {
		o.AutoCreate = func(string) bool { return true }
	}
	if o.Topics == 0 {
		o.Topics = 10_000
	}
	if o.Partitions == 0 {
		o.Partitions = 100_000
	}
	if o.Upkeep == 0 {
		o.Upkeep = 10 * time.Second
	}
}

// Broker is an open data directory: every topic in it, ready to append and to fetch.
//
// Ownership: safe for concurrent use.
type Broker struct {
	// immutable
	options Options
	log     *slog.Logger
	store   *storage.Store

	// topics by name; *Topic. Published by whoever holds admin.
	topics sync.Map

	counts counts

	admin sync.Mutex // serialises create, alter, delete and close; held over disk writes

	// guarded by admin
	ids     map[uint64]bool  // of every directory below topics, deleted ones included
	damaged map[string]error // names whose directory has no readable settings

	closed  atomic.Bool
	noSpace atomic.Bool        // an append was refused for want of space, and none worked since
	stop    context.CancelFunc // ends upkeep
	joined  sync.WaitGroup     // upkeep
}

// Open opens the data directory, recovers what is in it and starts the upkeep. Damage in one
// topic or partition is logged and told to those who use it; the others are served.
//
// Errors: vfs.ErrLocked, *storage.SealedError, those of the disk.
func Open(o Options) (*Broker, error) {
	o.complete()
	store, err := storage.OpenStore(o.FS, storage.StoreOptions{
		Now: o.Now, Holder: o.Holder, WriteBehind: o.WriteBehind, WriteBehindInterval: o.WriteBehindInterval,
		ParallelSyncs: o.ParallelSyncs, OpenFiles: o.OpenFiles, Elapsed: o.Elapsed,
		OnError: func(err error) { o.Log.Error("storage", "error", err) },
		OnSpace: func(full bool, free uint64) {
			if full {
				o.Log.Warn("disk full: messages are refused, the rest is kept for control records", "free_bytes", free)
			} else {
				o.Log.Info("disk has room again: messages are taken", "free_bytes", free)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	b := &Broker{options: o, log: o.Log, store: store, ids: make(map[uint64]bool), damaged: make(map[string]error)}
	if err := b.load(); err != nil {
		return nil, errors.Join(err, b.closeAll())
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	b.joined.Add(1)
	go func() {
		defer b.joined.Done()
		b.upkeep(ctx, o.Upkeep)
	}()
	return b, nil
}

// Close makes everything that was appended durable, completes the acknowledgements that wait
// for it, and closes the data directory. A second Close does nothing.
func (b *Broker) Close() error {
	b.admin.Lock()
	defer b.admin.Unlock()
	if !b.closed.CompareAndSwap(false, true) {
		return nil
	}
	b.stop()
	b.joined.Wait()
	return b.closeAll()
}

// closeAll closes every partition, several at a time, then the store.
func (b *Broker) closeAll() error {
	var parts []*Partition
	for _, t := range b.Topics() {
		parts = append(parts, t.Partitions()...)
	}
	err := each(parts, func(p *Partition) error { return p.close(ErrClosed) })
	return errors.Join(err, b.store.Close())
}

// each calls f for every partition, a few at a time, and joins the errors.
func each(parts []*Partition, f func(*Partition) error) error {
	workers := min(len(parts), 4*runtime.GOMAXPROCS(0))
	errs := make([]error, workers)
	var next atomic.Int64
	var joined sync.WaitGroup
	for w := range workers {
		joined.Add(1)
		go func() {
			defer joined.Done()
			for i := next.Add(1) - 1; i < int64(len(parts)); i = next.Add(1) - 1 {
				errs[w] = errors.Join(errs[w], f(parts[i]))
			}
		}()
	}
	joined.Wait()
	return errors.Join(errs...)
}

// NodeID is the identity of the data directory.
func (b *Broker) NodeID() uint64 { return b.store.NodeID() }

// WasClean tells whether the last run ended with Close.
func (b *Broker) WasClean() bool { return b.store.WasClean() }

// Now is the broker's clock, ns since 1970.
func (b *Broker) Now() int64 { return b.options.Now() }

// storageFailed counts and reports a partition under which the disk failed.
func (b *Broker) storageFailed(err error) {
	b.counts.failures.Add(1)
	b.log.Error("storage failed", "error", err)
	if b.options.OnStorageError != nil {
		b.options.OnStorageError(err)
	}
}

// reportRecovery logs what opening a log found, as loudly as it deserves.
func (b *Broker) reportRecovery(p *Partition, r *storage.Report) {
	level := slog.LevelDebug
	switch {
	case r.ReadOnly || len(r.Damage) > 0:
		level = slog.LevelError
	case r.TornBytes > 0 || r.LostSuffix || len(r.SetAside) > 0:
		level = slog.LevelWarn
	case r.ScannedBytes > 0:
		level = slog.LevelInfo
	}
	b.log.Log(context.Background(), level, "log opened", "topic", p.topic.name, "partition", p.number, "found", r.String())
}
