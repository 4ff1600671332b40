package jupyter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	firstRetry       = 20 * time.Millisecond
	lastRetry        = time.Second
	handshakeTimeout = 5 * time.Second
	// writeTimeout passes when a stopped kernel's socket buffer is full.
	writeTimeout = 10 * time.Second
	readBuffer   = 64 << 10
)

var errNotConnected = errors.New("the kernel's socket is not connected")

// socket is one ZMTP connection that comes back by itself, under the same
// identity: with a new one the kernel's pending replies would be lost.
type socket struct {
	network, address string
	kind             string
	identity         []byte
	limit            int64
	log              *slog.Logger

	mu   sync.Mutex
	conn net.Conn // nil while not connected
	up   chan struct{}
}

func newSocket(info ConnectionInfo, port int, kind string, identity []byte, opts Options) *socket {
	network, address := info.endpoint(port)
	return &socket{
		network: network, address: address, kind: kind, identity: identity,
		limit: opts.MaxFrame, log: opts.Log, up: make(chan struct{}),
	}
}

// run keeps the socket connected and hands every message to deliver until ctx ends.
func (s *socket) run(ctx context.Context, deliver func(frames [][]byte)) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = firstRetry, lastRetry
	for ctx.Err() == nil {
		began := time.Now()
		err := s.session(ctx, deliver)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errTooLarge) || errors.Is(err, errFrame) {
			s.log.Warn("a kernel socket was closed", "component", "jupyter", "err", err)
		}
		if time.Since(began) > lastRetry {
			wait.Reset()
		}
		timer := time.NewTimer(wait.NextBackOff())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// session is one connection from dial to loss.
func (s *socket) session(ctx context.Context, deliver func([][]byte)) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, s.network, s.address)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	defer conn.Close()
	r := bufio.NewReaderSize(conn, readBuffer)
	_ = conn.SetDeadline(time.Now().Add(handshakeTimeout)) // a mute peer would hold the dial for ever
	if err := handshake(r, conn, s.kind, s.identity); err != nil {
		return err
	}
	if s.kind == socketSub {
		if _, err := conn.Write(encode([][]byte{{1}})); err != nil { // subscribe to every topic
			return err
		}
	}
	_ = conn.SetDeadline(time.Time{})
	s.connected(conn)
	defer s.connected(nil)
	for {
		frames, err := readMessage(r, s.limit)
		if err != nil {
			return err
		}
		deliver(frames)
	}
}

func (s *socket) connected(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case conn != nil:
		s.conn = conn
		close(s.up)
	case s.conn != nil:
		s.lost()
	}
}

// lost has the next send wait for a new connection. The lock is held.
func (s *socket) lost() { s.conn, s.up = nil, make(chan struct{}) }

// await returns once the socket is connected.
func (s *socket) await(ctx context.Context) error {
	s.mu.Lock()
	up := s.up
	s.mu.Unlock()
	select {
	case <-up:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNotConnected, ctx.Err())
	}
}

// send writes one message, waiting for a lost connection to come back until ctx ends.
func (s *socket) send(ctx context.Context, frames [][]byte) error {
	data := encode(frames)
	for {
		s.mu.Lock()
		conn := s.conn
		if conn != nil {
			_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
			n, err := conn.Write(data)
			if err != nil {
				conn.Close()
			}
			if err == nil || n > 0 { // sent in part: whether the kernel got it is unknown
				s.mu.Unlock()
				return err
			}
			s.lost()
		}
		s.mu.Unlock()
		if err := s.await(ctx); err != nil {
			return err
		}
	}
}
