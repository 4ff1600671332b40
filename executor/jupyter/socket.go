package jupyter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// socket is one ZeroMQ socket: a connection that is made anew, under the same
// identity, whenever it is lost. The goroutine in run is the only reader.
type socket struct {
	name     string
	kind     socketType
	network  string
	address  string
	identity string
	bound    int64 // bytes of one message
	pool     *framePool
	key      signer
	log      *slog.Logger
	deliver  func(wireMessage)

	heard   atomic.Int64  // when bytes last came, in Unix nanoseconds
	writing chan struct{} // has an element while somebody writes

	mu      sync.Mutex
	conn    net.Conn      // nil while there is none
	changed chan struct{} // closed when conn or failure changes
	failure error         // why there is none
	closed  bool
}

// run keeps the socket connected until ctx ends.
func (s *socket) run(ctx context.Context) {
	defer s.set(nil, ErrClosed)
	var retry backoff
	for ctx.Err() == nil {
		held, err := s.session(ctx)
		if held > 0 {
			retry.connected(held)
			if ctx.Err() == nil {
				s.log.Info("connection to the kernel lost", "channel", s.name, "err", err)
			}
		}
		s.set(nil, err)
		retry.wait(ctx)
	}
}

// session is one connection from dial to loss. It returns how long the connection
// held after the handshake, zero when it didn't get that far.
func (s *socket) session(ctx context.Context) (held time.Duration, err error) {
	conn, err := (&net.Dialer{Timeout: handshakeTime}).DialContext(ctx, s.network, s.address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	frames := newFrameReader(hearing{conn, &s.heard}, s.bound, s.pool, s.key)
	if err := shake(conn, frames, s.kind, s.identity); err != nil {
		return 0, fmt.Errorf("handshake: %w", err)
	}
	began := time.Now()
	s.set(conn, nil)
	err = s.read(frames)
	return max(time.Since(began), 1), err
}

// hearing notes when bytes came.
type hearing struct {
	from io.Reader
	last *atomic.Int64
}

func (h hearing) Read(p []byte) (int, error) {
	n, err := h.from.Read(p)
	h.last.Store(time.Now().UnixNano())
	return n, err
}

func (s *socket) read(frames *frameReader) error {
	for {
		message, err := frames.message()
		if err != nil {
			return err
		}
		s.deliver(message)
	}
}

// set notes the connection there is now, or why there is none.
func (s *socket) set(conn net.Conn, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn, s.failure = conn, failure
	s.closed = failure == ErrClosed
	close(s.changed)
	s.changed = make(chan struct{})
}

// await returns the connection as soon as there is one.
func (s *socket) await(ctx context.Context) (net.Conn, error) {
	for {
		s.mu.Lock()
		conn, changed, closed, failure := s.conn, s.changed, s.closed, s.failure
		s.mu.Unlock()
		if conn != nil {
			return conn, nil
		}
		if closed {
			return nil, ErrClosed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if failure != nil {
				return nil, fmt.Errorf("%s not connected: %w (%v)", s.name, ctx.Err(), failure)
			}
			return nil, fmt.Errorf("%s not connected: %w", s.name, ctx.Err())
		}
	}
}

// send writes one message whole. When the connection breaks before all of it was
// handed to the system, the kernel can't have taken it, and the next connection
// gets it; what broke later is lost with the connection.
func (s *socket) send(ctx context.Context, message []byte) error {
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		conn, err := s.await(ctx)
		if err != nil {
			return err
		}
		err = write(ctx, conn, message)
		if err == nil {
			return nil
		}
		conn.Close() // half a message may be out; run makes a new connection
		if ctx.Err() != nil {
			return fmt.Errorf("writing to %s: %w", s.name, ctx.Err())
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("writing to %s: the kernel takes nothing: %v", s.name, err)
		}
		if err := s.awaitOther(ctx, conn); err != nil {
			return err
		}
	}
}

// awaitOther waits until run has noticed the end of conn.
func (s *socket) awaitOther(ctx context.Context, conn net.Conn) error {
	for {
		s.mu.Lock()
		current, changed := s.conn, s.changed
		s.mu.Unlock()
		if current != conn {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// writeTime bounds one write. Without it a stopped kernel (SIGSTOP, a debugger)
// holds a caller that set no deadline for ever.
const writeTime = 10 * time.Second

func write(ctx context.Context, conn net.Conn, message []byte) error {
	if err := conn.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := conn.Write(message)
	return err
}
