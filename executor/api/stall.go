package api

import (
	"io"
	"net/http"
	"time"
)

// bodyLimits is how slowly a body may be transferred. A short limit for the whole body
// would cut parts of files on a slow connection: eight parts of 8 MiB in parallel over
// 1 Mbit/s take nine minutes each.
type bodyLimits struct {
	stall time.Duration // for each piece
	total time.Duration // for the whole body, so that a peer that sends a byte now and then is cut too
}

// stallTimeout is long because a sender may be blocked while a slow connection drains the
// system's send buffer.
const stallTimeout = time.Minute

// next is the deadline of a piece that starts now, in a body that must end by end.
func (p bodyLimits) next(end time.Time) time.Time {
	piece := time.Now().Add(p.stall)
	if end.Before(piece) {
		return end
	}
	return piece
}

// stallReader reads a body from a connection and gives each piece its own deadline.
type stallReader struct {
	body   io.Reader
	conn   *http.ResponseController
	limits bodyLimits
	end    time.Time
}

func (p *stallReader) Read(b []byte) (int, error) {
	p.conn.SetReadDeadline(p.limits.next(p.end)) // fails only in tests, where there is no connection
	return p.body.Read(b)
}

// pieceBytes is how many bytes of an answer share one deadline, one record at most. At an
// eighth of 1 Mbit/s they are sent within 5 s.
const pieceBytes = 64 << 10

// send writes an answer, and does not wait for the handler's end: what follows, such as the
// access log, does not delay it. It fails if the body does, or if the caller has disconnected.
func (p bodyLimits) send(w http.ResponseWriter, status int, body io.Reader) error {
	to := &stallWriter{w: w, conn: http.NewResponseController(w), limits: p, end: time.Now().Add(p.total)}
	to.conn.SetWriteDeadline(p.next(to.end))
	w.WriteHeader(status)
	if _, err := io.Copy(to, body); err != nil {
		return err
	}
	return to.conn.Flush()
}

// stallWriter writes a body to a connection and gives each piece its own deadline.
type stallWriter struct {
	w      http.ResponseWriter
	conn   *http.ResponseController
	limits bodyLimits
	end    time.Time
}

func (s *stallWriter) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		s.conn.SetWriteDeadline(s.limits.next(s.end))
		m, err = s.w.Write(b[n:min(n+pieceBytes, len(b))])
		n += m
	}
	return n, err
}
