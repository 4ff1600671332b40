// Package jupyter speaks the Jupyter message protocol 5.3 to one kernel, over a
// custom ZeroMQ client (ZMTP 3.0, NULL mechanism). It is the only package that
// knows ZeroMQ. It must not know processes: a socket can't show whether a kernel is
// running, because a child that the kernel forked may keep its sockets open.
//
// Start reading at Client, then go on to socket.go for how connections are kept and
// inbox.go for what happens when messages arrive faster than they are received.
package jupyter

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"colabrelay/shared/bounded"
)

const (
	// defaultMaxFrame bounds what is held of one message, in bytes: a single print of
	// 100 MiB is one message. A larger one is discarded and counted in Message.Cut.
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
	invalid atomic.Int64 // messages that could not be read
	kernel  kernelSession

	cancel context.CancelFunc
	ended  <-chan struct{} // closed by Close
	group  sync.WaitGroup
}

// Dial connects the channels. It returns when the kernel answers on shell and its
// broadcasts arrive, so that no effect of a later request is missed. While the kernel
// is starting, Dial retries until ctx ends.
func Dial(ctx context.Context, conn ConnectionInfo, options Options) (*Client, error) {
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
	pool := &framePool{share: newShare(ctx, options.MaxFrame+options.QueueBytes)}
	c := &Client{
		log:     options.Log,
		session: rand.Text(),
		key:     signer(conn.Key),
		pool:    pool,
		inbox:   newInbox(options.QueueBytes, pool, options.Log),
		calls:   &calls{waiting: map[string]chan *Message{}},
		kernel:  kernelSession{replaced: make(chan struct{})},
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
	c.group.Go(func() { c.askAgain(ctx) })
	return c
}

// askAgain asks the kernel for a reply after each connection that was lost: another kernel may
// answer. The control channel answers also while code runs.
func (c *Client) askAgain(ctx context.Context) {
	for last := net.Conn(nil); ; {
		conn, err := c.sockets[Control].await(ctx, last)
		if err != nil {
			return
		}
		if last != nil {
			_, _ = c.Send(ctx, Control, MsgKernelInfoRequest, nil) // if that fails, the connection is lost again
		}
		last = conn
	}
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
	c.kernel.see(m.Header.Session)
	if c.calls.handle(m) {
		return
	}
	c.inbox.put(m)
}

// Replaced is closed when another kernel answers at the same ports than the one that was dialled:
// its process has replaced itself, by exec.
func (c *Client) Replaced() <-chan struct{} { return c.kernel.replaced }

// kernelSession is the session id that the kernel chose at its start. All its messages have it.
type kernelSession struct {
	mu       sync.Mutex
	id       string
	other    bool
	replaced chan struct{}
}

func (s *kernelSession) see(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id = cmp.Or(s.id, id)
	if id != s.id && !s.other {
		s.other = true
		close(s.replaced)
	}
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

const (
	// firstProbe and lastProbe bound the delay between two kernel_info_requests. The
	// first reply may arrive before the kernel has received the subscription, so that
	// its idle status is not sent to us. Only another request shows that it works.
	firstProbe = 50 * time.Millisecond
	lastProbe  = time.Second
)

// offer fills a channel of one element, unless it is full.
func offer(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// awaitReady sends requests until a reply and an idle status have arrived. What else has arrived by
// then is of the kernel's start. What arrives later of these requests belongs to no run.
func (c *Client) awaitReady(ctx context.Context) error {
	if err := c.awaitConnected(ctx); err != nil {
		return err
	}
	sent := map[string]bool{} // one a second while a kernel starts
	replied, idle := false, false
	take := func() {
		for m := c.Next(); m != nil; m = c.Next() {
			var status Status
			switch ours := sent[m.ParentHeader.MsgID]; {
			case ours && m.Header.MsgType == MsgKernelInfoReply:
				replied = true
			case ours && m.Header.MsgType == MsgStatus && m.Decode(&status) == nil && status.ExecutionState == "idle":
				idle = true
			}
			m.Release()
		}
	}
	for delay := firstProbe; !replied || !idle; delay = min(2*delay, lastProbe) {
		id, err := c.Send(ctx, Shell, MsgKernelInfoRequest, nil)
		if err != nil {
			return err
		}
		sent[id] = true
		again := time.NewTimer(delay)
		for waiting := true; waiting && (!replied || !idle); {
			select {
			case <-c.Arrived():
				take()
			case <-again.C:
				waiting = false
			case <-ctx.Done():
				again.Stop()
				return fmt.Errorf("it is connected, but answers no kernel_info_request: %w", ctx.Err())
			}
		}
		again.Stop()
	}
	return nil
}

func (c *Client) awaitConnected(ctx context.Context) error {
	for _, s := range c.sockets {
		if _, err := s.await(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// calls are the Requests that wait for their replies.
type calls struct {
	mu      sync.Mutex
	waiting map[string]chan *Message // by the request's msg_id
}

func (c *calls) add(id string) <-chan *Message {
	reply := make(chan *Message, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[id] = reply
	return reply
}

// remove ends a wait. A reply that arrived nevertheless is released.
func (c *calls) remove(id string, reply <-chan *Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
	select {
	case late := <-reply:
		late.Release()
	default:
	}
}

// handle reports whether a Request waits for m, and passes m to it.
func (c *calls) handle(m *Message) bool {
	if m.Channel != Shell && m.Channel != Control || !strings.HasSuffix(m.Header.MsgType, "_reply") {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	reply, ok := c.waiting[m.ParentHeader.MsgID]
	if ok {
		delete(c.waiting, m.ParentHeader.MsgID)
		reply <- m
	}
	return ok
}

// Send sends a message and returns its id, which all effects of it have as their parent.
// It waits while the channel is being reconnected. Content may be nil.
func (c *Client) Send(ctx context.Context, channel Channel, msgType string, content any) (msgID string, err error) {
	header := c.header(msgType)
	return header.MsgID, c.write(ctx, channel, header, struct{}{}, content)
}

// Request sends a message on shell or control and returns its reply, which the caller
// releases. Receive returns a reply that arrives after ctx has ended.
func (c *Client) Request(ctx context.Context, channel Channel, msgType string, content any) (*Message, error) {
	header := c.header(msgType)
	reply := c.calls.add(header.MsgID)
	defer c.calls.remove(header.MsgID, reply)
	if err := c.write(ctx, channel, header, struct{}{}, content); err != nil {
		return nil, err
	}
	select {
	case m := <-reply:
		return m, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the reply to %s: %w", msgType, ctx.Err())
	case <-c.ended:
		return nil, ErrClosed
	}
}

// Reply answers parent on stdin: an input_request, or a broadcast whose sender waits on
// stdin, as google.colab's calls do.
func (c *Client) Reply(ctx context.Context, parent *Message, msgType string, content any) error {
	return c.write(ctx, Stdin, c.header(msgType), parent.rawHeader, content)
}

func (c *Client) write(ctx context.Context, channel Channel, header Header, parent, content any) error {
	s := c.sockets[channel]
	if s == nil || s.kind != dealer {
		return fmt.Errorf("channel %q is not for sending", channel)
	}
	frames, err := encodeMessage(header, parent, content, c.key)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", header.MsgType, err)
	}
	return s.send(ctx, appendMessage(nil, frames...))
}

// Bounds of what is decoded of one reply or error: code in the kernel can write these messages
// itself, and an item of two bytes of JSON takes a hundred times as much when it is decoded.
const (
	maxExpressions = 100
	maxPayloads    = 100
	// maxTraceback bounds the traceback that is decoded, in bytes of JSON.
	maxTraceback      = 32 << 20
	maxTracebackItems = 10_000
)

// Expressions is the values of user_expressions, the first maxExpressions. The executor asks
// for one or two and shows none of them, so the rest are not counted.
type Expressions map[string]json.RawMessage

// UnmarshalJSON copies the values: they outlive raw.
func (e *Expressions) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	*e = Expressions{}
	return fields(raw, func(key string, value json.RawMessage) {
		if len(*e) < maxExpressions {
			(*e)[key] = bytes.Clone(value)
		}
	})
}

// Payload is a request of an execute_reply to the front end. The source page asks it to
// show data.
type Payload struct {
	Source  string
	Display DisplayData // only what the payload has under data
}

// UnmarshalJSON copies the data: it outlives raw.
func (p *Payload) UnmarshalJSON(raw []byte) error {
	*p = Payload{Display: DisplayData{Data: map[string]json.RawMessage{}}}
	var failed error
	keep := func(err error) { failed = cmp.Or(failed, err) }
	err := fields(bytes.Clone(raw), func(key string, value json.RawMessage) {
		switch key {
		case "source":
			keep(json.Unmarshal(value, &p.Source))
		case "data":
			keep(fields(value, p.Display.add))
		}
	})
	return cmp.Or(err, failed)
}

// Payloads is the payloads of a reply, the first maxPayloads.
type Payloads struct {
	Items        []Payload
	Omitted      int
	OmittedBytes int64 // of JSON
}

// UnmarshalJSON decodes the first maxPayloads and counts the rest.
func (p *Payloads) UnmarshalJSON(raw []byte) error {
	*p = Payloads{}
	all := json.NewDecoder(bytes.NewReader(raw))
	if open, err := all.Token(); err != nil || open == nil { // null has none
		return err
	}
	for all.More() {
		var one Payload
		var omitted json.RawMessage
		if len(p.Items) < maxPayloads {
			if err := all.Decode(&one); err != nil {
				return err
			}
			p.Items = append(p.Items, one)
			continue
		}
		if err := all.Decode(&omitted); err != nil {
			return err
		}
		p.Omitted++
		p.OmittedBytes += int64(len(omitted))
	}
	return nil
}

// Traceback is the frames of a traceback as texts.
type Traceback []string

// UnmarshalJSON replaces a traceback over the bounds by one line that states its size.
func (t *Traceback) UnmarshalJSON(raw []byte) error {
	if len(raw) > maxTraceback || bounded.Items(raw) > maxTracebackItems {
		*t = Traceback{fmt.Sprintf("[… a traceback of %d bytes is omitted …]", len(raw))}
		return nil
	}
	var frames []string
	err := json.Unmarshal(raw, &frames)
	*t = frames
	return err
}

// signatureScheme is the only scheme that kernels use.
const signatureScheme = "hmac-sha256"

// signer signs and verifies messages. With an empty key, the signature is empty and every
// message is accepted, as the protocol requires.
type signer []byte

func (s signer) sign(parts ...[]byte) []byte {
	if len(s) == 0 {
		return nil
	}
	mac := hmac.New(sha256.New, s)
	for _, part := range parts {
		mac.Write(part)
	}
	return hex.AppendEncode(nil, mac.Sum(nil))
}

func (s signer) verify(signature []byte, parts ...[]byte) bool {
	return len(s) == 0 || hmac.Equal(signature, s.sign(parts...))
}

// maxSocketPath is the longest path of a Unix socket on Linux, in bytes without its NUL.
const maxSocketPath = 107

// ErrPathTooLong means that the paths of ipc sockets in a folder would be longer than
// the system allows.
var ErrPathTooLong = errors.New("path of an ipc socket is too long: set TMPDIR to a folder with a shorter one")

// ConnectionInfo is the content of a kernel's connection file.
type ConnectionInfo struct {
	Transport       string `json:"transport"` // always "ipc"
	IP              string `json:"ip"`        // the path before "-PORT"
	ShellPort       int    `json:"shell_port"`
	IOPubPort       int    `json:"iopub_port"`
	StdinPort       int    `json:"stdin_port"`
	ControlPort     int    `json:"control_port"`
	HBPort          int    `json:"hb_port"`
	Key             string `json:"key"` // empty: messages are not signed
	SignatureScheme string `json:"signature_scheme"`
	KernelName      string `json:"kernel_name"`
}

// NewIPC prepares a kernel whose sockets are dir/k-1 to dir/k-5. A user who may enter
// dir may use the sockets, so dir should be private.
func NewIPC(dir string) (ConnectionInfo, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	info := ConnectionInfo{
		Transport: "ipc", IP: filepath.Join(dir, "k"),
		ShellPort: 1, IOPubPort: 2, StdinPort: 3, ControlPort: 4, HBPort: 5,
		Key: hex.EncodeToString(key), SignatureScheme: signatureScheme,
		KernelName: "python3",
	}
	if _, path := info.address(info.ShellPort); len(path) > maxSocketPath {
		return ConnectionInfo{}, fmt.Errorf("%q: %w", path, ErrPathTooLong)
	}
	return info, nil
}

// address returns the arguments of net.Dial.
func (c ConnectionInfo) address(port int) (network, address string) {
	return "unix", c.IP + "-" + strconv.Itoa(port)
}

// String omits the key.
func (c ConnectionInfo) String() string { return c.Transport + "://" + c.IP }

// GoString omits the key.
func (c ConnectionInfo) GoString() string { return c.String() }

// LogValue omits the key.
func (c ConnectionInfo) LogValue() slog.Value { return slog.StringValue(c.String()) }
