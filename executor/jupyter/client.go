// Package jupyter speaks the Jupyter message protocol 5.3 to one kernel, over a
// custom ZeroMQ client (ZMTP 3.0, NULL mechanism). It is the only package that
// knows ZeroMQ. It must not know processes: a socket can't show whether a kernel is
// running, because a child that the kernel forked may keep its sockets open.
//
// Start reading at Client, then go on to socket.go for how connections are kept and
// inbox.go for what happens when messages arrive faster than they are received.
package jupyter

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// defaultMaxFrame bounds what is held of one message, in bytes: a single print of
	// 100 MiB is one message. The rest is discarded and counted in Message.Cut.
	defaultMaxFrame = 256 << 20
	// maxReply bounds what is held of a message on shell, control or stdin, in bytes. What
	// code produces comes as broadcasts, but for an error and the page of help(), whose text
	// is decoded into as much memory again.
	maxReply = 64 << 20
	// defaultQueueBytes bounds the messages that wait for Receive.
	defaultQueueBytes = 24 << 20
)

// ErrClosed is the error of every method after Close.
var ErrClosed = errors.New("client is closed")

// Options configure a Client. A zero value means the default.
type Options struct {
	Log        *slog.Logger
	MaxFrame   int64 // bytes held of one message
	QueueBytes int64 // bytes of messages waiting for Receive; with MaxFrame, of the big ones on all sockets
	// As calls a function that connects to a socket, with the rights of the kernel's user.
	As func(connect func())
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Log = o.Log.With("component", "jupyter")
	o.MaxFrame = cmp.Or(o.MaxFrame, defaultMaxFrame)
	o.QueueBytes = cmp.Or(o.QueueBytes, defaultQueueBytes)
	if o.As == nil {
		o.As = func(connect func()) { connect() }
	}
	return o
}

// Client is connected to one kernel. Its methods may be called concurrently, except
// Receive and Next.
type Client struct {
	log     *slog.Logger
	session string // also the routing identity: stdin needs the same as shell
	key     signer
	pool    *framePool
	sockets map[Channel]*socket
	inbox   *inbox
	calls   *calls
	probe   *probe
	invalid atomic.Int64 // messages that could not be read

	cancel context.CancelFunc
	ended  <-chan struct{} // closed by Close
	group  sync.WaitGroup
}

// Dial connects the channels. It returns when the kernel answers on shell and its
// broadcasts arrive, so that no effect of a later request is missed. While the kernel
// is starting, Dial retries until ctx ends.
func Dial(ctx context.Context, conn ConnectionInfo, options Options) (*Client, error) {
	if err := conn.validate(); err != nil {
		return nil, err
	}
	c := newClient(conn, options.withDefaults())
	if err := c.awaitReady(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("kernel at %v is not ready: %w", conn, err)
	}
	return c, nil
}

// newClient starts a Client, which connects in the background.
func newClient(conn ConnectionInfo, options Options) *Client {
	ctx, cancel := context.WithCancel(context.Background())
	pool := &framePool{share: newShare(options.MaxFrame+options.QueueBytes, ctx.Done())}
	c := &Client{
		log:     options.Log,
		session: rand.Text(),
		key:     signer(conn.Key),
		pool:    pool,
		inbox:   newInbox(options.QueueBytes, pool, options.Log),
		calls:   &calls{waiting: map[string]chan *Message{}},
		probe:   &probe{sent: map[string]bool{}, replied: make(chan struct{}, 1), idle: make(chan struct{}, 1)},
		cancel:  cancel,
		ended:   ctx.Done(),
	}
	start := func(channel Channel, kind socketType, port int) *socket {
		bound := options.MaxFrame
		if kind == dealer {
			bound = min(bound, maxReply)
		}
		s := &socket{
			channel: channel, kind: kind, identity: c.session, bound: bound, pool: pool, key: c.key, log: options.Log, as: options.As,
			deliver: func(m wireMessage) { c.accept(channel, m) },
			writing: make(chan struct{}, 1), changed: make(chan struct{}),
		}
		s.network, s.address = conn.address(port)
		c.group.Go(func() { s.run(ctx) })
		return s
	}
	c.sockets = map[Channel]*socket{
		Shell:   start(Shell, dealer, conn.ShellPort),
		Control: start(Control, dealer, conn.ControlPort),
		Stdin:   start(Stdin, dealer, conn.StdinPort),
		IOPub:   start(IOPub, sub, conn.IOPubPort),
	}
	return c
}

// Close ends all connections and goroutines. Messages that arrived before can still be
// received.
func (c *Client) Close() error {
	c.cancel()
	c.inbox.close()
	c.group.Wait()
	return nil
}

// Receive returns the next message of iopub or stdin, or a reply that no Request waits
// for. The messages of one channel keep their order. Only one goroutine may call it
// or Next.
// See Message.Release for memory, and Message.Dropped for what a slow caller misses.
func (c *Client) Receive(ctx context.Context) (*Message, error) {
	return c.inbox.receive(ctx)
}

// LastReceived is when bytes of a broadcast or a reply last arrived, or now while
// messages wait for Receive. A message of hundreds of megabytes takes seconds to arrive.
func (c *Client) LastReceived() time.Time {
	if c.inbox.waiting() {
		return time.Now()
	}
	return time.Unix(0, max(c.sockets[IOPub].lastRead.Load(), c.sockets[Shell].lastRead.Load()))
}

// Arrived contains an element when a message may wait for Next. Only the goroutine that
// calls Next may read from it.
func (c *Client) Arrived() <-chan struct{} { return c.inbox.ready }

// Next is Receive for a caller that waits for Arrived among other things. It returns nil
// if no message waits.
func (c *Client) Next() *Message {
	m, _ := c.inbox.next()
	return m
}

// accept handles a message from a socket.
func (c *Client) accept(channel Channel, wire wireMessage) {
	m, err := parseMessage(channel, wire, c.key)
	if err != nil {
		c.pool.put(wire.frames, wire.taken)
		if n := c.invalid.Add(1); n&(n-1) == 0 { // powers of two: the more there are, the fewer lines
			c.log.Warn("dropping an invalid message from the kernel", "channel", channel, "err", err, "dropped_so_far", n)
		}
		return
	}
	m.pool = c.pool
	if c.probe.handle(m) {
		m.Release()
		return
	}
	if c.calls.handle(m) {
		return
	}
	c.inbox.put(m)
}

// header returns the header of a new message.
func (c *Client) header(msgType string) Header {
	return Header{
		MsgID: rand.Text(), MsgType: msgType,
		Session: c.session, Username: "colab-relay",
		Date:    time.Now().UTC().Format(time.RFC3339Nano),
		Version: protocolVersion,
	}
}
