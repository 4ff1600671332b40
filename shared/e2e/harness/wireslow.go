package harness

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"time"
)

const (
	// wireChunk is the most bytes that a Wire forwards at once.
	wireChunk = 32 << 10
	// wireHeld is how many chunks are under way in one direction of a slow connection:
	// 32 MiB, so that a delay of 50 ms permits 640 MB/s.
	wireHeld = 1024
)

var errWireClosed = errors.New("the other end is closed")

// slow returns what to write to: the connection itself, or one end of a queue that delays
// each chunk by half a round trip, and no chunk leaves before opened.
func (w *Wire) slow(to, from net.Conn, opened time.Time) io.WriteCloser {
	if w.roundTrip == 0 {
		return to
	}
	q := &delayed{to: to, from: from, opened: opened, delay: w.roundTrip / 2, chunks: make(chan delayedChunk, wireHeld), ended: make(chan struct{})}
	w.ended.Go(q.forward)
	return q
}

// delayed forwards chunks late, in order.
type delayed struct {
	to, from net.Conn
	opened   time.Time
	delay    time.Duration
	chunks   chan delayedChunk
	ended    chan struct{} // closed when nothing more is forwarded
}

type delayedChunk struct {
	due  time.Time
	data []byte
}

// Write queues a copy of p.
func (d *delayed) Write(p []byte) (int, error) {
	leaves := time.Now()
	if leaves.Before(d.opened) {
		leaves = d.opened
	}
	select {
	case d.chunks <- delayedChunk{due: leaves.Add(d.delay), data: slices.Clone(p)}:
		return len(p), nil
	case <-d.ended:
		return 0, errWireClosed
	}
}

// Close closes the connection when all that was written has been forwarded.
func (d *delayed) Close() error {
	close(d.chunks)
	return nil
}

func (d *delayed) forward() {
	defer d.from.Close()
	defer d.to.Close()
	defer close(d.ended)
	for chunk := range d.chunks {
		<-time.After(time.Until(chunk.due))
		if _, err := d.to.Write(chunk.data); err != nil {
			return
		}
	}
}

// requestCounter counts the request lines of HTTP/1.1 in a stream.
type requestCounter struct {
	tail []byte // the last bytes of the stream, shorter than requestMark
}

var requestMark = []byte(" HTTP/1.1\r\n")

// count returns how many request lines end in p, which follows the earlier bytes.
func (c *requestCounter) count(p []byte) int64 {
	keep := len(requestMark) - 1
	seam := append(c.tail, p[:min(keep, len(p))]...)
	n := bytes.Count(seam, requestMark) + bytes.Count(p, requestMark)
	if len(p) >= keep {
		seam = p
	}
	c.tail = bytes.Clone(seam[max(0, len(seam)-keep):])
	return int64(n)
}
