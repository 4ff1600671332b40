package jupyter

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

const (
	// firstProbe and lastProbe bound the delay between two kernel_info_requests. The
	// first reply may arrive before the kernel has received the subscription, so that
	// its idle status is not sent to us. Only another request shows that it works.
	firstProbe = 50 * time.Millisecond
	lastProbe  = time.Second
)

// probe shows Dial that requests are answered and broadcasts arrive. The effects of its
// requests are never returned by Receive, however late they arrive.
type probe struct {
	mu      sync.Mutex
	sent    map[string]bool // msg_ids; one a second while a kernel starts
	replied chan struct{}
	idle    chan struct{}
}

func (p *probe) add(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent[id] = true
}

// handle reports whether m is an effect of the probe's requests.
func (p *probe) handle(m *Message) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.sent[m.ParentHeader.MsgID] {
		return false
	}
	switch m.Header.MsgType {
	case MsgKernelInfoReply:
		offer(p.replied)
	case MsgStatus:
		var status Status
		if json.Unmarshal(m.Content, &status) == nil && status.ExecutionState == "idle" {
			offer(p.idle)
		}
	}
	return true
}

// offer fills a channel of one element, unless it is full.
func offer(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// awaitReady sends requests until a reply and an idle status have arrived.
func (c *Client) awaitReady(ctx context.Context) error {
	if err := c.awaitConnected(ctx); err != nil {
		return err
	}
	replied, idle := false, false
	for delay := firstProbe; !replied || !idle; delay = min(2*delay, lastProbe) {
		header := c.header(MsgKernelInfoRequest)
		c.probe.add(header.MsgID)
		if err := c.write(ctx, Shell, header, struct{}{}, nil); err != nil {
			return err
		}
		again := time.NewTimer(delay)
		for waiting := true; waiting && (!replied || !idle); {
			select {
			case <-c.probe.replied:
				replied = true
			case <-c.probe.idle:
				idle = true
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
