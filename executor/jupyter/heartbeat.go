package jupyter

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
)

// heart is the heartbeat channel. A thread of the kernel echoes what it receives, so an
// echo shows that the process is running, not that its main thread is free.
type heart struct {
	socket *socket
	one    chan struct{} // holds an element while a beat waits for its echo
	echo   chan []byte
}

func newHeart() *heart {
	return &heart{one: make(chan struct{}, 1), echo: make(chan []byte, 1)}
}

// echoed keeps the latest echo.
func (h *heart) echoed(m wireMessage) {
	if len(m.frames) == 0 {
		return // over the bound, so not an echo
	}
	select {
	case <-h.echo:
	default:
	}
	offer(h.echo, m.frames[len(m.frames)-1])
}

// Heartbeat sends a beat and returns when its echo arrives.
func (c *Client) Heartbeat(ctx context.Context) error {
	h := c.heart
	select {
	case h.one <- struct{}{}:
		defer func() { <-h.one }()
	case <-ctx.Done():
		return ctx.Err()
	}
	beat := []byte(rand.Text())
	// A REP socket expects an empty frame as the envelope; a ROUTER echoes it.
	if err := h.socket.send(ctx, appendMessage(nil, nil, beat)); err != nil {
		return err
	}
	for {
		select {
		case echo := <-h.echo:
			if bytes.Equal(echo, beat) { // not the late echo of an earlier beat
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("no echo on heartbeat: %w", ctx.Err())
		case <-c.ended:
			return ErrClosed
		}
	}
}
