package audit

import (
	"sync"
	"time"
)

// slow is the cause of an omission without an error.
const slow = "the file could not be written fast enough"

// queue holds the lines that are not written yet. It never makes anybody wait: lines beyond
// its bound are dropped and counted, and a record says so at their place.
type queue struct {
	most int           // bytes
	wake chan struct{} // buffered: there is something to write

	mu      sync.Mutex
	lines   []waiting
	bytes   int // of lines
	dropped omission
	cause   string // why lines are dropped
}

// waiting is a line that is not written yet.
type waiting struct {
	text    []byte
	written chan struct{} // closed when the line is in the file or dropped
}

func newQueue(most int) *queue {
	return &queue{most: most, wake: make(chan struct{}, 1), cause: slow}
}

// put adds a line, or drops it if there is no room.
func (q *queue) put(text []byte, now time.Time) (written <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := waiting{text, make(chan struct{})}
	if q.bytes+len(text) > q.most || q.dropped.count > 0 && !q.tellDroppedLocked(len(text)) {
		q.dropped.add(now)
		close(w.written)
		return w.written
	}
	q.addLocked(w)
	return w.written
}

func (q *queue) addLocked(w waiting) {
	q.lines = append(q.lines, w)
	q.bytes += len(w.text)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// tellDroppedLocked adds the record of what was dropped, if there is room for it and for as
// many bytes more.
func (q *queue) tellDroppedLocked(more int) bool {
	text := q.dropped.record(q.cause).line()
	if q.bytes+len(text)+more > q.most {
		return false
	}
	q.dropped, q.cause = omission{}, slow
	q.addLocked(waiting{text, make(chan struct{})})
	return true
}

// blame says why lines will be dropped from now on.
func (q *queue) blame(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cause = err.Error()
}

// first returns the oldest line, nil if there is none.
func (q *queue) first() *waiting {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.lines) == 0 && q.dropped.count > 0 {
		q.tellDroppedLocked(0)
	}
	if len(q.lines) == 0 {
		return nil
	}
	return &q.lines[0]
}

// pop removes the oldest line, which is in the file.
func (q *queue) pop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	close(q.lines[0].written)
	q.bytes -= len(q.lines[0].text)
	q.lines[0] = waiting{}
	if q.lines = q.lines[1:]; len(q.lines) == 0 {
		q.lines = nil
	}
}

// omission counts records that were not kept.
type omission struct {
	count int
	since time.Time
}

func (o *omission) add(now time.Time) {
	if o.count == 0 {
		o.since = now
	}
	o.count++
}

func (o omission) record(cause string) record {
	return record{Time: time.Now().UTC(), Event: eventOmitted, Count: o.count, Since: &o.since, Cause: cause}
}

// bucket is a token bucket. It is full at first. It is for one goroutine at a time.
type bucket struct {
	most, perSecond float64
	spent           float64
	at              time.Time // when spent was right
}

// take takes n tokens if the bucket has them.
func (b *bucket) take(n float64, now time.Time) bool {
	b.spent = max(0, b.spent-b.perSecond*now.Sub(b.at).Seconds())
	b.at = now
	if b.spent+n > b.most {
		return false
	}
	b.spent += n
	return true
}
