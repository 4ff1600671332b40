package jupyter

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
)

// heart is the heartbeat channel. A thread of the kernel echoes what it gets, so
// an echo says that the process runs, not that its main thread is free.
type heart struct {
	socket *socket
	one    chan struct{} // has an element while a beat is under way
	echo   chan []byte
}

func newHeart() *heart {
	return &heart{one: make(chan struct{}, 1), echo: make(chan []byte, 1)}
}

// echoed keeps the newest echo.
func (h *heart) echoed(m wireMessage) {
	if len(m.frames) == 0 {
		return // over the bound, so no echo of ours
	}
	select {
	case <-h.echo:
	default:
	}
	offer(h.echo, m.frames[len(m.frames)-1])
}

// Heartbeat sends one beat and returns at its echo.
func (c *Client) Heartbeat(ctx context.Context) error {
	h := c.heart
	select {
	case h.one <- struct{}{}:
		defer func() { <-h.one }()
	case <-ctx.Done():
		return ctx.Err()
	}
	beat := []byte(rand.Text())
	// The empty frame is the envelope that a REP socket wants; a ROUTER echoes it.
	if err := h.socket.send(ctx, appendMessage(nil, nil, beat)); err != nil {
		return err
	}
	for {
		select {
		case echo := <-h.echo:
			if bytes.Equal(echo, beat) {
				return nil
			} // else one of a beat given up
		case <-ctx.Done():
			return fmt.Errorf("no echo on heartbeat: %w", ctx.Err())
		case <-c.ended:
			return ErrClosed
		}
	}
}
