package jupyter

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// messageOverhead is about what a queued message needs besides its frames, in bytes, and
	// frameOverhead what each frame needs besides its content.
	messageOverhead = 1 << 10
	frameOverhead   = 48
	// roomTimeout is how long the reader of a big message waits until the consumer releases
	// another one: a busy machine or a slow disk takes seconds for 16 MB. Prints at full speed
	// arrive as a few such messages, which the kernel can hold that long. Small messages
	// never wait: past its own queue limit the kernel drops them, uncounted, and possibly the
	// idle status with them.
	roomTimeout = 5 * time.Second
	// bigMessage is the size from which a message may wait, in bytes.
	bigMessage = 1 << 20
	// maxDropParents bounds the parents whose dropped output is counted at a time.
	maxDropParents = 1024
	// maxDropParent bounds the id of one of them, in bytes. Those of our requests have 26.
	maxDropParent = 256
)

// inbox is the queue between the readers of the sockets and Receive.
//
// Output over the bound is dropped and counted. Other messages are kept up to twice the
// bound; then their reader waits, and the kernel's own queue fills. A message that exceeds the
// bound alone does not count for small ones, so that what follows it is not dropped.
type inbox struct {
	bound int64
	pool  *framePool
	log   *slog.Logger

	mu       sync.Mutex
	room     *sync.Cond
	queue    []*Message
	used     int64    // bytes of queue and received
	received *Message // what Receive returned last, until it is released
	dropped  map[string]Dropped
	stalled  bool // a big message has waited in vain since the last Receive
	closed   bool
	ready    chan struct{} // holds an element when Receive should check the queue
}

func newInbox(bound int64, pool *framePool, log *slog.Logger) *inbox {
	q := &inbox{
		bound: bound, pool: pool, log: log,
		dropped: map[string]Dropped{},
		ready:   make(chan struct{}, 1),
	}
	q.room = sync.NewCond(&q.mu)
	return q
}

// put queues m, or drops and counts it.
func (q *inbox) put(m *Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if isOutput(m) {
		if !q.awaitOutputRoomLocked(m) {
			q.dropLocked(m)
			return
		}
	} else {
		for !q.closed && !q.fitsLocked(m, 2*q.bound) {
			q.room.Wait()
		}
	}
	parent := m.ParentHeader.MsgID
	m.Dropped = q.dropped[parent]
	delete(q.dropped, parent)
	m.inbox = q
	q.queue = append(q.queue, m)
	q.used += m.cost()
	offer(q.ready)
}

// isOutput reports whether m may be dropped: output can be of any number and size.
func isOutput(m *Message) bool {
	switch m.Header.MsgType {
	case MsgStream, MsgDisplayData, MsgUpdateDisplayData, MsgExecuteResult:
		return m.Channel == IOPub
	}
	return m.Channel == IOPub && m.size >= bigMessage && m.Header.MsgType != MsgError
}

// fitsLocked reports whether there is room for m. A message over the bound fits if it is
// the only one.
func (q *inbox) fitsLocked(m *Message, bound int64) bool {
	return len(q.queue) == 0 && q.received == nil || q.used+m.cost() <= bound
}

// oversizedLocked returns the cost of the message that exceeds the bound alone; 0 if there is none.
// It came when there was no other, so it is the first.
func (q *inbox) oversizedLocked() int64 {
	first := q.received
	if first == nil && len(q.queue) > 0 {
		first = q.queue[0]
	}
	if first == nil || first.cost() <= q.bound {
		return 0
	}
	return first.cost()
}

// awaitOutputRoomLocked reports whether there is room for m. Only a big message waits for
// room, and not if the last one waited in vain.
func (q *inbox) awaitOutputRoomLocked(m *Message) bool {
	if m.size < bigMessage {
		return q.fitsLocked(m, q.bound+q.oversizedLocked())
	}
	if q.stalled || q.fitsLocked(m, q.bound) {
		return q.fitsLocked(m, q.bound)
	}
	expired := false
	timer := time.AfterFunc(roomTimeout, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		expired = true
		q.room.Broadcast()
	})
	defer timer.Stop()
	for !q.closed && !expired && !q.fitsLocked(m, q.bound) {
		q.room.Wait()
		timer.Reset(roomTimeout)
	}
	q.stalled = !q.fitsLocked(m, q.bound)
	return !q.stalled
}

// dropLocked drops m and counts it for its parent.
func (q *inbox) dropLocked(m *Message) {
	parent := m.ParentHeader.MsgID
	count, counted := q.dropped[parent]
	if !counted && (len(q.dropped) >= maxDropParents || len(parent) > maxDropParent) {
		q.log.Warn("dropping output that is not counted", "channel", m.Channel, "bytes", m.size+m.Cut)
	} else {
		q.dropped[parent] = Dropped{Messages: count.Messages + 1, Bytes: count.Bytes + m.size + m.Cut}
	}
	q.pool.put(m.frames, m.taken)
}

// receive returns the oldest message. After close it returns the remaining ones.
func (q *inbox) receive(ctx context.Context) (*Message, error) {
	for {
		if m, err := q.next(); m != nil || err != nil {
			return m, err
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// next returns nil if there is no message yet. If more messages wait, q.ready says so.
func (q *inbox) next() (*Message, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.releaseLocked()
	if len(q.queue) == 0 {
		if q.closed {
			return nil, ErrClosed
		}
		return nil, nil
	}
	m := q.queue[0]
	q.queue[0] = nil
	if q.queue = q.queue[1:]; len(q.queue) == 0 {
		q.queue = nil // the array behind it may have become long
	} else {
		offer(q.ready)
	}
	q.received, q.stalled = m, false
	return m, nil
}

// waiting reports whether messages wait for Receive.
func (q *inbox) waiting() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue) > 0
}

// released makes room when the consumer releases m before it receives the next one.
func (q *inbox) released(m *Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.received == m {
		q.releaseLocked()
	}
}

// releaseLocked stops counting the message that was received last.
func (q *inbox) releaseLocked() {
	if q.received == nil {
		return
	}
	q.used -= q.received.cost()
	q.received = nil
	q.room.Broadcast()
}

func (q *inbox) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.room.Broadcast()
	offer(q.ready)
}

// cost is about the memory that m needs. Release does not change it.
func (m *Message) cost() int64 { return m.size + m.extra + messageOverhead }
