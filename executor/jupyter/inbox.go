package jupyter

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// messageOverhead is about what a queued message costs besides its frames.
	messageOverhead = 1 << 10
	// patience is how long the reader of a big message waits for room. Prints at
	// full speed come as a few messages of 16 MB, which the kernel may keep a
	// moment longer without losing any; small ones it drops past the limit of its own
	// queue, uncounted and with the idle status among them, so they never wait.
	patience = time.Second
	// bigMessage is from where on a message may wait.
	bigMessage = 1 << 20
	// maxDropParents bounds the parents whose dropped output is counted at once.
	maxDropParents = 1024
)

// inbox is the queue between the readers of the sockets and Receive.
//
// Output past the bound is dropped and counted. What is not output is kept up to
// twice the bound; from there on its reader waits, and the kernel's own queue is
// the next one to fill.
type inbox struct {
	bound int64
	pool  *framePool
	log   *slog.Logger

	mu      sync.Mutex
	room    *sync.Cond
	queue   []*Message
	used    int64    // bytes of queue and held
	held    *Message // what Receive returned last, until it is released
	dropped map[string]Dropped
	stalled bool // nobody received while a big message waited
	closed  bool
	ready   chan struct{} // has an element when Receive should look
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
		if !q.awaitOutputRoom(m) {
			q.drop(m)
			return
		}
	} else {
		for !q.closed && !q.fits(m, 2*q.bound) {
			q.room.Wait()
		}
	}
	parent := m.ParentHeader.MsgID
	m.Dropped = q.dropped[parent]
	delete(q.dropped, parent)
	m.inbox = q
	q.queue = append(q.queue, m)
	q.used += m.cost()
	q.signal()
}

// isOutput tells what may be dropped: payloads, which can be of any number and size.
func isOutput(m *Message) bool {
	switch m.Header.MsgType {
	case MsgStream, MsgDisplayData, MsgUpdateDisplayData, MsgExecuteResult:
		return m.Channel == IOPub
	}
	return m.Channel == IOPub && m.size >= bigMessage && m.Header.MsgType != MsgError
}

// fits is true also for a message over the bound when it would be alone.
func (q *inbox) fits(m *Message, bound int64) bool {
	return len(q.queue) == 0 && q.held == nil || q.used+m.cost() <= bound
}

// awaitOutputRoom reports whether m may be queued. Only a big message waits for
// it, and not where the last wait was in vain.
func (q *inbox) awaitOutputRoom(m *Message) bool {
	if m.size < bigMessage || q.stalled || q.fits(m, q.bound) {
		return q.fits(m, q.bound)
	}
	expired := false
	timer := time.AfterFunc(patience, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		expired = true
		q.room.Broadcast()
	})
	defer timer.Stop()
	for !q.closed && !expired && !q.fits(m, q.bound) {
		q.room.Wait()
	}
	q.stalled = !q.fits(m, q.bound)
	return !q.stalled
}

// drop counts m for its parent and forgets it.
func (q *inbox) drop(m *Message) {
	parent := m.ParentHeader.MsgID
	count, known := q.dropped[parent]
	if !known && len(q.dropped) >= maxDropParents {
		q.log.Warn("output dropped, uncounted", "channel", m.Channel, "bytes", m.size+m.Cut)
	} else {
		q.dropped[parent] = Dropped{Messages: count.Messages + 1, Bytes: count.Bytes + m.size + m.Cut}
	}
	q.pool.put(m.frames)
}

// receive returns the oldest message. After close it still returns what is there.
func (q *inbox) receive(ctx context.Context) (*Message, error) {
	for {
		if m, err := q.take(); m != nil || err != nil {
			return m, err
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (q *inbox) take() (*Message, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.letGo()
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
	}
	q.held, q.stalled = m, false
	return m, nil
}

// waiting reports whether messages wait for Receive.
func (q *inbox) waiting() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue) > 0
}

// released makes room at once where the consumer is done before it receives again.
func (q *inbox) released(m *Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held == m {
		q.letGo()
	}
}

// letGo ends the accounting of the message handed out last.
func (q *inbox) letGo() {
	if q.held == nil {
		return
	}
	q.used -= q.held.cost()
	q.held = nil
	q.room.Broadcast()
}

func (q *inbox) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.room.Broadcast()
	q.signal()
}

func (q *inbox) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

func (m *Message) cost() int64 { return m.size + messageOverhead }
