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

// socket is one ZeroMQ socket: a connection that is made again, under the same identity,
// whenever it is lost. Only the goroutine in run reads from it.
type socket struct {
	channel  Channel
	kind     socketType
	network  string
	address  string
	identity string
	bound    int64 // bytes of one message
	pool     *framePool
	key      signer
	log      *slog.Logger
	deliver  func(wireMessage)
	as       func(connect func())

	lastRead atomic.Int64  // when bytes last arrived, in Unix nanoseconds
	writing  chan struct{} // holds an element during a write

	mu      sync.Mutex
	conn    net.Conn      // nil while not connected
	changed chan struct{} // closed when conn or failure changes, then replaced
	failure error         // why conn is nil
	closed  bool
}

// run keeps the socket connected until ctx ends.
func (s *socket) run(ctx context.Context) {
	defer s.set(nil, ErrClosed)
	var retry backoff
	for ctx.Err() == nil {
		existed, err := s.connect(ctx)
		if existed > 0 {
			retry.lost(existed)
			if ctx.Err() == nil {
				s.log.Info("connection to the kernel lost", "channel", s.channel, "err", err)
			}
		}
		s.set(nil, err)
		retry.wait(ctx)
	}
}

// connect makes one connection and reads from it until it is lost. It returns how long
// the connection existed after the handshake, 0 if the handshake failed.
func (s *socket) connect(ctx context.Context) (existed time.Duration, err error) {
	var conn net.Conn
	s.as(func() { conn, err = (&net.Dialer{Timeout: handshakeTime}).DialContext(ctx, s.network, s.address) })
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	frames := newFrameReader(timedReader{conn, &s.lastRead}, s.bound, s.pool, s.key)
	if s.kind != sub {
		frames.torn = 0 // only broadcasts are streams
	}
	if err := shake(conn, frames, s.kind, s.identity); err != nil {
		return 0, fmt.Errorf("handshake: %w", err)
	}
	began := time.Now()
	s.set(conn, nil)
	err = s.read(frames)
	return max(time.Since(began), 1), err
}

// timedReader records when bytes arrived.
type timedReader struct {
	from io.Reader
	last *atomic.Int64
}

func (r timedReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.last.Store(time.Now().UnixNano())
	return n, err
}

func (s *socket) read(frames *frameReader) error {
	for {
		message, err := frames.message()
		if err != nil {
			s.pool.put(message.frames, message.taken)
			return err
		}
		s.deliver(message)
	}
}

// set records the current connection, or why there is none.
func (s *socket) set(conn net.Conn, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn, s.failure = conn, failure
	s.closed = failure == ErrClosed
	close(s.changed)
	s.changed = make(chan struct{})
}

// await waits for a connection that is not broken, and returns it. broken may be nil.
func (s *socket) await(ctx context.Context, broken net.Conn) (net.Conn, error) {
	for {
		s.mu.Lock()
		conn, changed, closed, failure := s.conn, s.changed, s.closed, s.failure
		s.mu.Unlock()
		if conn != nil && conn != broken {
			return conn, nil
		}
		if closed {
			return nil, ErrClosed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if failure != nil {
				return nil, fmt.Errorf("%s not connected: %w (%v)", s.channel, ctx.Err(), failure)
			}
			return nil, fmt.Errorf("%s not connected: %w", s.channel, ctx.Err())
		}
	}
}

// send writes one message. If the connection breaks before the system has accepted all of
// it, the kernel can't have received it, and send writes it to the next connection. If the
// connection breaks later, the message is lost.
func (s *socket) send(ctx context.Context, message []byte) error {
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for broken := net.Conn(nil); ; {
		conn, err := s.await(ctx, broken)
		if err != nil {
			return err
		}
		err = write(ctx, conn, message)
		if err == nil {
			return nil
		}
		conn.Close() // a part of the message may have been sent; run reconnects
		if ctx.Err() != nil {
			return fmt.Errorf("writing to %s: %w", s.channel, ctx.Err())
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("writing to %s: the kernel does not read: %v", s.channel, err)
		}
		broken = conn
	}
}

// writeTime bounds one write. Without it, a stopped kernel (SIGSTOP, a debugger) would
// block a caller without a deadline for ever.
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
