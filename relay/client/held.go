package client

import (
	"context"

	"colabrelay/shared/memory"
)

// Large answers wait for their turns (package memory). These functions keep the turns until the
// answer is decoded, which takes several times the memory of its text.

// held is call that keeps the turns.
func held[T any](ctx context.Context, c *Client, again policy, build func() request) (T, error) {
	ctx, done := memory.Hold(ctx)
	defer done()
	return call[T](ctx, c, again, build)
}

// finishHeld is finish that keeps the turns.
func finishHeld[T any](ctx context.Context, a *attempts, again policy) (T, error) {
	ctx, done := memory.Hold(ctx)
	defer done()
	return finish[T](ctx, a, again)
}
