package broker

import (
	"sync"
	"sync/atomic"

	"github.com/millrace-mq/millrace/protocol"
)

// maxWaiters bounds each wait list of a partition.
const maxWaiters = 100_000

// Waiter is somebody who wants to know when an end of a partition moves: always the same end
// of the same partition. It is in no list any more when Wake is called.
//
// Ownership: the caller's memory, usually part of a subscription; one goroutine parks it.
type Waiter struct {
	// Wake is called without any lock held, from whoever moved the end. It must not block, and
	// may be called once after Leave when the two cross. Immutable.
	Wake func()

	index uint64 // guarded by the list's mu: what it waits for; 0 = any move
	place int    // guarded by the list's mu: position in the list + 1; 0 = not in it
}

// waitList is a bounded set of parked waiters.
type waitList struct {
	parked atomic.Int32 // length of list, published by whoever holds mu

	mu    sync.Mutex
	list  []*Waiter
	spare []*Waiter // memory of the last woken stretch
	over  bool      // nobody parks any more
}

// park adds w. It is false when the list is over; the caller then looks at the partition's
// state instead. After a true the caller must look once more whether the end moved meanwhile.
func (l *waitList) park(w *Waiter, index uint64) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false, nil
	}
	if w.place != 0 {
		panic("broker: waiter parked twice")
	}
	if len(l.list) >= maxWaiters {
		return false, &protocol.Error{Code: protocol.Quota, Detail: "waiters of the partition",
			Actual: maxWaiters + 1, Limit: maxWaiters, Setting: "waiters"}
	}
	l.list = append(l.list, w)
	w.index, w.place = index, len(l.list)
	l.parked.Store(int32(len(l.list)))
	return true, nil
}

// leave takes w out and tells whether it was in: false means that it was or is being woken.
func (l *waitList) leave(w *Waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.place == 0 {
		return false
	}
	l.drop(w.place - 1)
	l.parked.Store(int32(len(l.list)))
	return true
}

// drop removes list[i]; mu is held.
func (l *waitList) drop(i int) {
	last := len(l.list) - 1
	l.list[i].place = 0
	if i != last {
		l.list[i] = l.list[last]
		l.list[i].place = i + 1
	}
	l.list[last] = nil
	l.list = l.list[:last]
}

// wake wakes those that wait for index or less; those that wait for any move always.
func (l *waitList) wake(index uint64) {
	if l.parked.Load() == 0 {
		return
	}
	l.mu.Lock()
	woken := l.spare[:0]
	l.spare = nil
	for i := 0; i < len(l.list); {
		if w := l.list[i]; w.index <= index {
			woken = append(woken, w)
			l.drop(i)
			continue
		}
		i++
	}
	l.parked.Store(int32(len(l.list)))
	l.mu.Unlock()
	for i, w := range woken {
		w.Wake()
		woken[i] = nil
	}
	l.mu.Lock()
	l.spare = woken[:0]
	l.mu.Unlock()
}

// end wakes everybody and lets nobody park again.
func (l *waitList) end() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.wake(^uint64(0))
}

// len is the number of parked waiters.
func (l *waitList) len() int { return int(l.parked.Load()) }
