package jupyter

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Options bound a Client. The zero value of a field means its default.
type Options struct {
	Log        *slog.Logger
	MaxFrame   int64 // bytes of one message; 256 MiB
	QueueBytes int64 // output waiting for Receive; 32 MiB
}

func (o Options) orDefault() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MaxFrame == 0 {
		o.MaxFrame = 256 << 20
	}
	if o.QueueBytes == 0 {
		o.QueueBytes = 32 << 20
	}
	return o
}

// probeEvery is how long Dial waits for iopub before it asks again: what a SUB
// subscribed too late for is gone.
const probeEvery = 250 * time.Millisecond

// Client is a connection to one kernel. Its methods may be called from many
// goroutines at once, Receive from one.
type Client struct {
	session string
	signer  signer
	log     *slog.Logger
	inbox   *inbox
	sockets map[Channel]*socket
	hb      *socket
	info    KernelInfo

	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	waiting map[string]chan *Message // requests by id
	echo    chan []byte
	hbTurn  sync.Mutex
}

// Dial connects to a kernel, one that still starts too, and returns when it
// answers and its output is sure to be heard. It tries until ctx ends.
func Dial(ctx context.Context, info ConnectionInfo, opts Options) (*Client, error) {
	opts = opts.orDefault()
	// Shell and stdin must share their identity: the kernel asks for input by the
	// one that the execute_request came from.
	identity := []byte(uuid.NewString())
	c := &Client{
		session: uuid.NewString(),
		signer:  signer{key: []byte(info.Key)},
		log:     opts.Log,
		inbox:   newInbox(opts.QueueBytes),
		sockets: map[Channel]*socket{
			Shell:   newSocket(info, info.ShellPort, socketDealer, identity, opts),
			Control: newSocket(info, info.ControlPort, socketDealer, identity, opts),
			Stdin:   newSocket(info, info.StdinPort, socketDealer, identity, opts),
			IOPub:   newSocket(info, info.IOPubPort, socketSub, nil, opts),
		},
		hb:      newSocket(info, info.HBPort, socketDealer, identity, opts),
		waiting: map[string]chan *Message{},
		echo:    make(chan []byte, 1),
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = cancel
	for channel, s := range c.sockets {
		c.done.Go(func() { s.run(running, func(frames [][]byte) { c.deliver(channel, frames) }) })
	}
	c.done.Go(func() { c.hb.run(running, c.echoed) })
	if err := c.greet(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// greet asks for kernel_info until both the reply and its idle status were
// heard. All sockets must be up before: an input_request that the kernel sends
// while stdin is not connected yet is lost, and the code waits for ever.
func (c *Client) greet(ctx context.Context) error {
	for channel, s := range c.sockets {
		if err := s.await(ctx); err != nil {
			return fmt.Errorf("connecting %s: %w", channel, err)
		}
	}
	for {
		heard, err := c.greetOnce(ctx)
		if heard {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the kernel did not answer: %w", ctx.Err())
		}
		if err != nil {
			return err
		}
	}
}

func (c *Client) greetOnce(ctx context.Context) (heard bool, err error) {
	reply, err := c.Request(ctx, Shell, MsgKernelInfoRequest, struct{}{})
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(reply.Content, &c.info); err != nil {
		return false, fmt.Errorf("kernel_info_reply: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, probeEvery)
	defer cancel()
	for {
		m, err := c.Receive(ctx)
		if err != nil {
			return false, nil
		}
		var s Status
		if m.Header.MsgType == MsgStatus && m.ParentHeader.MsgID == reply.ParentHeader.MsgID &&
			json.Unmarshal(m.Content, &s) == nil && s.ExecutionState == "idle" {
			return true, nil
		}
	}
}

// Info is what the kernel said of itself when it was dialled.
func (c *Client) Info() KernelInfo { return c.info }

// deliver takes one message in from a socket's goroutine. It never waits.
func (c *Client) deliver(channel Channel, frames [][]byte) {
	m, err := parse(c.signer, channel, frames)
	if err != nil {
		c.log.Warn("a message was left out", "component", "jupyter", "channel", string(channel), "err", err)
		return
	}
	if channel == Shell || channel == Control {
		c.mu.Lock()
		wanted := c.waiting[m.ParentHeader.MsgID]
		c.mu.Unlock()
		if wanted != nil {
			select {
			case wanted <- m:
			default: // a second reply to one request
			}
			return
		}
	}
	c.inbox.put(m)
}

// Send sends a message and returns its id, without waiting for what comes of it.
// While the socket is lost it waits for it to come back until ctx ends.
func (c *Client) Send(ctx context.Context, channel Channel, msgType string, content any) (id string, err error) {
	return c.send(ctx, channel, msgType, nil, content)
}

func (c *Client) send(ctx context.Context, channel Channel, msgType string, parent []byte, content any) (string, error) {
	frames, id, err := build(c.signer, c.session, msgType, parent, content)
	if err != nil {
		return "", err
	}
	if err := c.sockets[channel].send(ctx, frames); err != nil {
		return "", fmt.Errorf("sending %s: %w", msgType, err)
	}
	return id, nil
}

// Request sends a message on shell or control and returns its reply.
func (c *Client) Request(ctx context.Context, channel Channel, msgType string, content any) (*Message, error) {
	frames, id, err := build(c.signer, c.session, msgType, nil, content)
	if err != nil {
		return nil, err
	}
	reply := make(chan *Message, 1)
	c.mu.Lock()
	c.waiting[id] = reply
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, id)
		c.mu.Unlock()
	}()
	if err := c.sockets[channel].send(ctx, frames); err != nil {
		return nil, fmt.Errorf("sending %s: %w", msgType, err)
	}
	select {
	case m := <-reply:
		return m, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the reply to %s: %w", msgType, ctx.Err())
	}
}

// Reply answers a message of the kernel on stdin, with its header as the parent.
func (c *Client) Reply(ctx context.Context, parent *Message, msgType string, content any) error {
	_, err := c.send(ctx, Stdin, msgType, parent.rawHeader, content)
	return err
}

// Receive returns the next message of iopub and stdin, and of shell and control
// what nobody waits for in Request; in the order of its channel. ErrClosed after Close.
func (c *Client) Receive(ctx context.Context) (*Message, error) {
	return c.inbox.take(ctx)
}

// Heartbeat sends one ping and waits for its echo. It works while code runs.
func (c *Client) Heartbeat(ctx context.Context) error {
	c.hbTurn.Lock()
	defer c.hbTurn.Unlock()
	ping := []byte(uuid.NewString())
	// An empty frame first: the kernel's side is a REP or a plain echo, both keep it.
	if err := c.hb.send(ctx, [][]byte{{}, ping}); err != nil {
		return fmt.Errorf("sending a heartbeat: %w", err)
	}
	for {
		select {
		case echo := <-c.echo:
			if bytes.Equal(echo, ping) {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("waiting for a heartbeat: %w", ctx.Err())
		}
	}
}

func (c *Client) echoed(frames [][]byte) {
	select {
	case c.echo <- frames[len(frames)-1]:
	default: // late echo of a ping that gave up
	}
}

// Close ends the connection and returns when its goroutines have ended.
func (c *Client) Close() error {
	c.cancel()
	c.done.Wait()
	c.inbox.close()
	return nil
}
