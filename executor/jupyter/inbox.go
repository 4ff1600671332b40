package jupyter

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
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
// bound alone is let in when there is no other, and does not count, so that what follows it is not
// dropped.
type inbox struct {
	bound int64
	pool  *framePool
	log   *slog.Logger

	mu       sync.Mutex
	room     *sync.Cond
	queue    []*Message
	used     int64    // bytes of queue and received, as counted
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
	q.used += q.counted(m)
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

// counted is what m takes of the bound.
func (q *inbox) counted(m *Message) int64 {
	if m.cost() > q.bound {
		return 0
	}
	return m.cost()
}

// awaitOutputRoomLocked reports whether there is room for m. Only a big message waits for
// room, and not if the last one waited in vain.
func (q *inbox) awaitOutputRoomLocked(m *Message) bool {
	if fits := q.fitsLocked(m, q.bound); fits || q.stalled || m.size < bigMessage {
		return fits
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
	q.used -= q.counted(q.received)
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

const (
	// bigFrame is the size from which a frame is reused. A kernel sends prints at full
	// speed in messages of about 16 MB; with a new frame for each, the garbage collector
	// lets the heap grow to twice what is in use.
	bigFrame = 1 << 20
	// Capacities from stepFrom on are multiples of frameStep, so that one frame fits all
	// prints of 9 to 18 MB that follow each other. Bytes that are never written to need
	// addresses but no memory.
	frameStep = 9 << 20
	stepFrom  = frameStep / 2
	// pooledBytes bounds the frame that is kept for reuse.
	pooledBytes = 20 << 20
)

// framePool keeps the last big frame for reuse.
type framePool struct {
	share *share // of all messages whose frames are in use; nil: they have no bound together

	mu   sync.Mutex
	free []byte
}

// get returns a frame of size bytes with arbitrary content.
func (p *framePool) get(size int) []byte {
	if size < bigFrame {
		return make([]byte, size)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	frame := p.free
	p.free = nil // if it does not fit now, it is not worth its memory
	switch {
	case cap(frame) >= size && cap(frame) <= 4*size:
		return frame[:size]
	case size < stepFrom:
		return make([]byte, size)
	}
	return make([]byte, size, (size+frameStep-1)/frameStep*frameStep)
}

// take reports whether a message may hold n more bytes.
func (p *framePool) take(n int64) bool { return p.share == nil || p.share.take(n) }

// put takes back the frames of a message that are no longer used, and what it took.
func (p *framePool) put(frames [][]byte, taken int64) {
	if taken > 0 {
		p.share.give(taken)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, frame := range frames {
		if cap(frame) >= bigFrame && cap(frame) <= pooledBytes {
			p.free = frame
		}
	}
}

const (
	// shareTimeout is how long a big message waits until others give memory back. The print
	// before it may have 200 MiB, which takes a second to write to the log.
	shareTimeout = 5 * time.Second
	// unshared is how many bytes of a message each socket may hold without a share, so that
	// no small message ever waits.
	unshared = bigMessage
)

// share is the memory for big messages of all sockets together, from their arrival until
// they are released: four sockets that each held one of the largest, and others that waited,
// took gigabytes. A message that gets no share is treated as one over the bound.
type share struct {
	ctx     context.Context // nobody waits after its end
	free    *semaphore.Weighted
	given   atomic.Int64 // how often bytes were given back
	stalled atomic.Bool  // a message has waited in vain since then
}

func newShare(ctx context.Context, bound int64) *share {
	return &share{ctx: ctx, free: semaphore.NewWeighted(bound)}
}

// take reports whether it took n bytes. It waits for them while bytes are given back, however
// slowly, but not if the last message waited in vain: whatever holds the memory, the other sockets
// go on.
func (s *share) take(n int64) bool {
	for !s.stalled.Load() {
		given := s.given.Load()
		ctx, cancel := context.WithTimeout(s.ctx, shareTimeout)
		err := s.free.Acquire(ctx, n)
		cancel()
		if err == nil || s.ctx.Err() != nil {
			return err == nil
		}
		s.stalled.Store(s.given.Load() == given)
	}
	return s.free.TryAcquire(n)
}

// give returns what take took.
func (s *share) give(n int64) {
	s.given.Add(1)
	s.stalled.Store(false)
	s.free.Release(n)
}

// wireMessage is one message as it was received.
type wireMessage struct {
	frames [][]byte
	size   int64   // of the frames
	taken  int64   // from the share of all sockets
	excess *excess // nil if all frames fit the bound
}

// Positions of the frames from the delimiter on.
const (
	signatureFrame = 1 + iota
	headerFrame
	parentFrame
	metadataFrame
	contentFrame
)

// excess reads the frames of a message that do not fit the bound: it computes the signature, and
// counts what is not held.
type excess struct {
	mac     hash.Hash // of all signed frames
	at      int       // position of the current frame, from the delimiter on
	dropped int64     // bytes of signed frames
}

// newExcess returns an excess for what follows the frames that fit.
func newExcess(frames [][]byte, key signer) *excess {
	parts := fromDelimiter(frames)
	x := &excess{at: len(parts) - 1, mac: hmac.New(sha256.New, key)}
	for i := headerFrame; i < len(parts) && i <= contentFrame; i++ {
		x.mac.Write(parts[i])
	}
	return x
}

// Write drops a piece of the current frame.
func (x *excess) Write(p []byte) (int, error) {
	if x.at <= contentFrame { // buffers are neither signed nor used
		x.mac.Write(p)
		x.dropped += int64(len(p))
	}
	return len(p), nil
}

// verified reports whether signature is that of the complete message.
func (x *excess) verified(signature []byte, key signer) bool {
	return len(key) == 0 || hmac.Equal(signature, hex.AppendEncode(nil, x.mac.Sum(nil)))
}
