package jupyter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
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

const (
	firstRetry = 5 * time.Millisecond
	// startingRetry is the longest delay before the first connection. It adds to the
	// time that a kernel takes to start.
	startingRetry = 40 * time.Millisecond
	// lostRetry is the longest delay after a connection was lost.
	lostRetry = time.Second
	// stableAfter is how long a connection must have existed to reset the delay.
	// Otherwise a peer that hangs up after each handshake would be dialled in a loop.
	stableAfter = 2 * time.Second
)

// run keeps the socket connected until ctx ends.
func (s *socket) run(ctx context.Context) {
	defer s.set(nil, ErrClosed)
	delays := backoff.NewExponentialBackOff()
	delays.InitialInterval, delays.MaxInterval = firstRetry, startingRetry
	for ctx.Err() == nil {
		existed, err := s.connect(ctx)
		if existed > 0 {
			delays.MaxInterval = lostRetry
			if ctx.Err() == nil {
				s.log.Info("connection to the kernel lost", "channel", s.channel, "err", err)
			}
		}
		if existed >= stableAfter {
			delays.Reset()
		}
		s.set(nil, err)
		select {
		case <-time.After(delays.NextBackOff()):
		case <-ctx.Done():
		}
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

// socketType is a ZeroMQ socket type of this client.
type socketType string

const (
	dealer socketType = "DEALER"
	sub    socketType = "SUB"
)

// peers are the types that a socket can be connected to (ZMTP 3.0, "The Socket-Type
// Property").
var peers = map[socketType][]string{
	dealer: {"ROUTER", "REP"},
	sub:    {"PUB", "XPUB"},
}

const (
	greetingSize = 64
	// handshakeTime bounds the handshake. Without it, a peer that accepts and then
	// sends nothing would block the socket for ever.
	handshakeTime = 5 * time.Second
)

// greeting requests ZMTP 3.0 with the NULL mechanism. With minor version 0, a newer peer
// uses no commands of 3.1: subscriptions are messages.
func greeting() []byte {
	g := make([]byte, greetingSize)
	g[0], g[9] = 0xFF, 0x7F // signature
	g[10], g[11] = 3, 0     // version
	copy(g[12:32], "NULL")  // mechanism; then as-server and filler, all zero
	return g
}

func checkGreeting(g []byte) error {
	if g[0] != 0xFF || g[9] != 0x7F {
		return fmt.Errorf("%w: the greeting's signature is wrong", errProtocol)
	}
	if g[10] < 3 {
		return fmt.Errorf("%w: version %d is older than 3", errProtocol, g[10])
	}
	if mechanism := bytes.TrimRight(g[12:32], "\x00"); string(mechanism) != "NULL" {
		return fmt.Errorf("%w: mechanism %q is not NULL", errProtocol, mechanism)
	}
	return nil
}

// shake performs the handshake over conn (ZMTP 3.0, "Overall Behaviour").
func shake(conn net.Conn, r *frameReader, kind socketType, identity string) error {
	if err := conn.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return err
	}
	ready := appendFrame(greeting(), flagCommand, readyCommand(kind, identity))
	if _, err := conn.Write(ready); err != nil {
		return err
	}
	if err := readHandshake(r, kind); err != nil {
		return err
	}
	if kind == sub { // subscribe to everything
		if _, err := conn.Write(appendFrame(nil, 0, []byte{1})); err != nil {
			return err
		}
	}
	return conn.SetDeadline(time.Time{})
}

// readHandshake reads and checks the peer's half.
func readHandshake(r *frameReader, kind socketType) error {
	g := make([]byte, greetingSize)
	if _, err := io.ReadFull(r.in, g); err != nil {
		return fmt.Errorf("reading the greeting: %v", err)
	}
	if err := checkGreeting(g); err != nil {
		return err
	}
	command, err := r.command()
	if err != nil {
		return fmt.Errorf("reading READY: %v", err)
	}
	peer, err := parseReady(command)
	if err != nil {
		return err
	}
	if !slices.Contains(peers[kind], peer) {
		return fmt.Errorf("%w: a %s can't be connected to a %.20q", errProtocol, kind, peer)
	}
	return nil
}

func readyCommand(kind socketType, identity string) []byte {
	command := []byte("\x05READY")
	command = appendProperty(command, "Socket-Type", string(kind))
	return appendProperty(command, "Identity", identity)
}

func appendProperty(dst []byte, name, value string) []byte {
	dst = append(dst, byte(len(name)))
	dst = append(dst, name...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	return append(dst, value...)
}

// parseReady returns the peer's socket type and ignores other properties.
func parseReady(command []byte) (socketType string, err error) {
	name, rest, ok := shortString(command)
	if !ok {
		return "", fmt.Errorf("%w: a command without a name", errProtocol)
	}
	if name == "ERROR" {
		reason, _, _ := shortString(rest)
		return "", fmt.Errorf("the peer refuses: %.100q", reason)
	}
	if name != "READY" {
		return "", fmt.Errorf("%w: command %.20q instead of READY", errProtocol, name)
	}
	for len(rest) > 0 {
		var property string
		if property, rest, ok = shortString(rest); !ok || len(rest) < 4 {
			return "", fmt.Errorf("%w: READY is incomplete", errProtocol)
		}
		size := binary.BigEndian.Uint32(rest)
		if rest = rest[4:]; uint64(size) > uint64(len(rest)) {
			return "", fmt.Errorf("%w: READY is incomplete", errProtocol)
		}
		if strings.EqualFold(property, "Socket-Type") {
			socketType = string(rest[:size])
		}
		rest = rest[size:]
	}
	return socketType, nil
}

// shortString reads a string that follows its length in one byte.
func shortString(b []byte) (s string, rest []byte, ok bool) {
	if len(b) == 0 || len(b) < 1+int(b[0]) {
		return "", nil, false
	}
	return string(b[1 : 1+int(b[0])]), b[1+int(b[0]):], true
}

// Flags of a ZMTP frame (ZMTP 3.0, "Framing").
const (
	flagMore    = 1 << 0
	flagLong    = 1 << 1 // the length has eight bytes instead of one
	flagCommand = 1 << 2
)

const (
	// maxCommand bounds a command, in bytes. Real ones have a few dozen.
	maxCommand = 64 << 10
	// maxFrames bounds the frames of one message that are held. A Jupyter message has six,
	// a topic or identity before them, and one for each buffer, which nobody uses.
	maxFrames = 64
	// maxPassed bounds a frame that is discarded. A larger one does not fit into any
	// kernel's memory: the peer does not speak ZMTP, and waiting for the end of the
	// frame would block the socket for ever.
	maxPassed = 1 << 40
)

// errFrameTooLarge means that a peer announced a frame that no kernel can hold.
var errFrameTooLarge = errors.New("frame is over the bound")

// errProtocol means that the peer does not speak ZMTP 3 with the NULL mechanism.
var errProtocol = errors.New("not ZMTP")

// frameReader reads the frames of one connection.
type frameReader struct {
	in    *bufio.Reader
	bound int64 // bytes of one message that are held
	pool  *framePool
	key   signer // for messages that are not held completely
}

func newFrameReader(r io.Reader, bound int64, pool *framePool, key signer) *frameReader {
	// Big frames bypass the buffer: bufio reads directly into a larger slice.
	return &frameReader{in: bufio.NewReaderSize(r, 64<<10), bound: bound, pool: pool, key: key}
}

// message reads the next message. It skips commands between messages. Frames over the
// bound are discarded, so that the connection remains usable; the message then has an
// excess.
func (r *frameReader) message() (wireMessage, error) {
	m := wireMessage{frames: make([][]byte, 0, 8)}
	for {
		flags, size, err := r.head()
		if err != nil {
			return m, err
		}
		if flags&flagCommand != 0 {
			if err := r.skipCommand(m, size); err != nil {
				return m, err
			}
			continue
		}
		if m.excess == nil && r.hold(&m, size) {
			body, err := r.body(size, maxPassed)
			if err != nil {
				return m, err
			}
			m.frames = append(m.frames, body)
		} else if err := r.discard(&m, size); err != nil {
			return m, err
		}
		if flags&flagMore == 0 {
			return m, nil
		}
	}
}

// hold reports whether m may hold another frame, whose size was announced, and counts it.
func (r *frameReader) hold(m *wireMessage, size uint64) bool {
	if size > uint64(r.bound-m.size) || len(m.frames) >= maxFrames {
		return false
	}
	if held := m.size + int64(size); held > unshared {
		if !r.pool.take(held - m.taken) {
			return false
		}
		m.taken = held
	}
	m.size += int64(size)
	return true
}

func (r *frameReader) skipCommand(m wireMessage, size uint64) error {
	if len(m.frames) > 0 || m.excess != nil {
		return fmt.Errorf("%w: a command inside a message", errProtocol)
	}
	if size > maxCommand {
		return fmt.Errorf("%w: a command of %d bytes, at most %d are allowed", errFrameTooLarge, size, maxCommand)
	}
	_, err := r.in.Discard(int(size))
	return unexpected(err)
}

// discard reads a frame that m has no room for.
func (r *frameReader) discard(m *wireMessage, size uint64) error {
	if size > maxPassed {
		return fmt.Errorf("%w: %d bytes", errFrameTooLarge, size)
	}
	if m.excess == nil {
		m.excess = newExcess(m.frames, r.key)
	}
	m.excess.at++
	_, err := io.CopyN(m.excess, r.in, int64(size))
	return unexpected(err)
}

// command reads a frame that must be a command.
func (r *frameReader) command() ([]byte, error) {
	flags, size, err := r.head()
	if err != nil {
		return nil, err
	}
	body, err := r.body(size, maxCommand)
	if err == nil && flags&flagCommand == 0 {
		err = fmt.Errorf("%w: a message instead of a command", errProtocol)
	}
	return body, err
}

// head reads what precedes a frame's body.
func (r *frameReader) head() (flags byte, size uint64, err error) {
	if flags, err = r.in.ReadByte(); err != nil {
		return 0, 0, err
	}
	if flags&^(flagMore|flagLong|flagCommand) != 0 || flags&(flagCommand|flagMore) == flagCommand|flagMore {
		return 0, 0, fmt.Errorf("%w: frame flags %#x", errProtocol, flags)
	}
	size, err = r.size(flags)
	return flags, size, unexpected(err)
}

// body reads a frame's body, of at most limit bytes.
func (r *frameReader) body(size, limit uint64) ([]byte, error) {
	if size > limit {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are allowed", errFrameTooLarge, size, limit)
	}
	body := r.pool.get(int(size))
	_, err := io.ReadFull(r.in, body)
	return body, unexpected(err)
}

func (r *frameReader) size(flags byte) (uint64, error) {
	if flags&flagLong == 0 {
		b, err := r.in.ReadByte()
		return uint64(b), err
	}
	var long [8]byte
	_, err := io.ReadFull(r.in, long[:])
	return binary.BigEndian.Uint64(long[:]), err
}

// unexpected distinguishes an end inside a frame from one between two frames.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendFrame appends the wire form of a frame.
func appendFrame(dst []byte, flags byte, body []byte) []byte {
	if len(body) <= 255 {
		dst = append(dst, flags, byte(len(body)))
	} else {
		dst = append(dst, flags|flagLong)
		dst = binary.BigEndian.AppendUint64(dst, uint64(len(body)))
	}
	return append(dst, body...)
}

// appendMessage appends the wire form of a message.
func appendMessage(dst []byte, frames ...[]byte) []byte {
	for i, frame := range frames {
		flags := byte(flagMore)
		if i == len(frames)-1 {
			flags = 0
		}
		dst = appendFrame(dst, flags, frame)
	}
	return dst
}
