package jupyter

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

const (
	// firstProbe and lastProbe are the pauses between two kernel_info_requests. The
	// first reply may come before the kernel knows of our subscription, so that its
	// idle status is never sent to us: only asking again shows that it works.
	firstProbe = 50 * time.Millisecond
	lastProbe  = time.Second
)

// probe is how Dial learns that requests are answered and broadcasts arrive.
// What its requests lead to is never handed out, however late it comes.
type probe struct {
	mu    sync.Mutex
	asked map[string]bool // msg_ids; one a second while a kernel starts
	info  chan KernelInfo
	idle  chan struct{}
}

func newProbe() *probe {
	return &probe{asked: map[string]bool{}, info: make(chan KernelInfo, 1), idle: make(chan struct{}, 1)}
}

func (p *probe) add(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[id] = true
}

// took reports whether m belongs to the probe, and takes it if so.
func (p *probe) took(m *Message) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asked[m.ParentHeader.MsgID] {
		return false
	}
	switch m.Header.MsgType {
	case MsgKernelInfoReply:
		var info KernelInfo
		if json.Unmarshal(m.Content, &info) == nil {
			offer(p.info, info)
		}
	case MsgStatus:
		var status Status
		if json.Unmarshal(m.Content, &status) == nil && status.ExecutionState == "idle" {
			offer(p.idle, struct{}{})
		}
	}
	return true
}

// offer fills a channel of one element; a second one changes nothing.
func offer[T any](c chan T, v T) {
	select {
	case c <- v:
	default:
	}
}

// awaitReady asks until both the reply and the idle status of a request came.
func (c *Client) awaitReady(ctx context.Context) error {
	if err := c.awaitConnected(ctx); err != nil {
		return err
	}
	replied, idle := false, false
	for pause := firstProbe; !replied || !idle; pause = min(2*pause, lastProbe) {
		header := c.header(MsgKernelInfoRequest)
		c.probe.add(header.MsgID)
		if err := c.write(ctx, Shell, header, struct{}{}, nil); err != nil {
			return err
		}
		again := time.NewTimer(pause)
		for waiting := true; waiting && (!replied || !idle); {
			select {
			case c.info = <-c.probe.info:
				replied = true
			case <-c.probe.idle:
				idle = true
			case <-again.C:
				waiting = false
			case <-ctx.Done():
				again.Stop()
				return fmt.Errorf("connected, but it answers no kernel_info_request: %w", ctx.Err())
			}
		}
		again.Stop()
	}
	return nil
}

func (c *Client) awaitConnected(ctx context.Context) error {
	for _, s := range []*socket{c.sockets[IOPub], c.sockets[Shell], c.sockets[Control], c.sockets[Stdin], c.heart.socket} {
		if _, err := s.await(ctx); err != nil {
			return err
		}
	}
	return nil
}
