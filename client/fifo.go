package client

// fifo is a queue in one slice that is used again.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

func (q *fifo[T]) push(v T) {
	if q.head > 0 && q.head >= cap(q.items)/2 && len(q.items) == cap(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

// pop removes the oldest; the queue must not be empty.
func (q *fifo[T]) pop() T {
	v := q.items[q.head]
	var zero T
	q.items[q.head] = zero
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return v
}

// all views what is queued, oldest first.
func (q *fifo[T]) all() []T { return q.items[q.head:] }

// prepend puts items before all others, in their order.
func (q *fifo[T]) prepend(items []T) {
	if len(items) == 0 {
		return
	}
	q.items = append(append(make([]T, 0, len(items)+q.len()), items...), q.all()...)
	q.head = 0
}

// remove takes out the item at index i of all.
func (q *fifo[T]) remove(i int) {
	copy(q.items[q.head+i:], q.items[q.head+i+1:])
	var zero T
	q.items[len(q.items)-1] = zero
	q.items = q.items[:len(q.items)-1]
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
}
