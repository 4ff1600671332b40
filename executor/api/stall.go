package api

import (
	"io"
	"net/http"
	"time"
)

// bodyLimits is how slowly a body may move. One limit for the whole would cut a part of a
// file on a slow line, which is no fault: six parts of 4 MiB at once over 1 Mbit/s
// take over three minutes each.
type bodyLimits struct {
	stall time.Duration // between two pieces
	total time.Duration // all of it: a peer that sends a byte now and then is cut in the end
}

// stallTimeout is long, since a sender may be stopped while a slow line empties what
// the system had taken from it.
const stallTimeout = time.Minute

// next is the deadline of a piece that begins now, of a body that must end by end.
func (p bodyLimits) next(end time.Time) time.Time {
	piece := time.Now().Add(p.stall)
	if end.Before(piece) {
		return end
	}
	return piece
}

// stallReader reads a body from a connection, each piece within its deadline.
type stallReader struct {
	body   io.Reader
	conn   *http.ResponseController
	limits bodyLimits
	end    time.Time
}

func (p *stallReader) Read(b []byte) (int, error) {
	p.conn.SetReadDeadline(p.limits.next(p.end)) // what has no deadline needs none: it is no connection
	return p.body.Read(b)
}

// pieceBytes is how much of an answer has one deadline. At a sixth of 1 Mbit/s it is
// gone within 13 s.
const pieceBytes = 256 << 10

// send writes an answer's body. An error means that the caller is gone, or as good
// as: nobody is left to tell.
func (p bodyLimits) send(w http.ResponseWriter, status int, body []byte) {
	conn := http.NewResponseController(w)
	end := time.Now().Add(p.total)
	conn.SetWriteDeadline(p.next(end))
	w.WriteHeader(status)
	for len(body) > 0 {
		conn.SetWriteDeadline(p.next(end))
		n, err := w.Write(body[:min(pieceBytes, len(body))])
		if err != nil {
			return
		}
		body = body[n:]
	}
}
