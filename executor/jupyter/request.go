package jupyter

import (
	"context"
	"fmt"
	"strings"
	"sync"
)

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
