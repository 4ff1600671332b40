package main

import (
	"context"
	"fmt"
	"time"

	"colabrelay/shared/e2e/harness"
)

// farRuns measures 1+1 at several delays. Each way has a wire of its own, which counts.
func farRuns(ctx context.Context, b *bench) ([]row, error) {
	p, err := b.pair(ctx)
	if err != nil {
		return nil, err
	}
	flask := ""
	if b.bridge != "" {
		if flask, err = b.flask(ctx); err != nil {
			return nil, err
		}
	}
	var rows []row
	for _, delay := range []struct {
		roundTrip time.Duration
		n         int
	}{{20 * time.Millisecond, 60}, {100 * time.Millisecond, 20}, {250 * time.Millisecond, 15}} {
		more, err := farRun(ctx, b, delay.roundTrip, delay.n, p.executor.Ready.LocalURL, flask)
		if err != nil {
			return rows, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// farWay is a way through a wire of its own.
type farWay struct {
	way
	wire *harness.Wire
}

func farRun(ctx context.Context, b *bench, roundTrip time.Duration, n int, executor, flask string) ([]row, error) {
	far, err := farWays(ctx, b, roundTrip, executor, flask)
	if err != nil {
		return nil, err
	}
	if _, err := (timing{n: 3}).inTurn(ctx, only(far)...); err != nil {
		return nil, err
	}
	for _, f := range far {
		f.wire.CutAt() // resets the counts
	}
	s, err := timing{n: n}.inTurn(ctx, only(far)...)
	if err != nil {
		return nil, err
	}
	var bridge samples
	if flask != "" {
		bridge = s[len(s)-1]
	}
	rows := make([]row, len(far))
	for i, f := range far {
		rows[i] = latency(fmt.Sprintf("%s at %s", f.name, short(roundTrip)), s[i])
		rows[i].note = perCall(f.wire.Traffic(), n)
		if i < 2 {
			rows[i] = rows[i].comparedTo("old-style bridge", s[i], bridge)
			rows[i].target = oneRoundTrip(f.wire.Traffic(), n)
		}
	}
	return rows, nil
}

// farWays returns POST, tool call and, if there is one, the bridge.
func farWays(ctx context.Context, b *bench, roundTrip time.Duration, executor, flask string) ([]farWay, error) {
	posts, url, err := b.wire(executor, roundTrip)
	if err != nil {
		return nil, err
	}
	c, err := b.client(url)
	if err != nil {
		return nil, err
	}
	tools, url, err := b.wire(executor, roundTrip)
	if err != nil {
		return nil, err
	}
	h, err := b.host(ctx, url)
	if err != nil {
		return nil, err
	}
	far := []farWay{{post(c), posts}, {toolCall(h), tools}}
	if flask == "" {
		return far, nil
	}
	bridged, url, err := b.wire(flask, roundTrip)
	if err != nil {
		return nil, err
	}
	old, err := b.bridgeHost(ctx, url)
	if err != nil {
		return nil, err
	}
	w := toolCall(old)
	w.name = "old-style bridge"
	return append(far, farWay{w, bridged}), nil
}

func only(far []farWay) []way {
	ways := make([]way, len(far))
	for i, f := range far {
		ways[i] = f.way
	}
	return ways
}

func perCall(t harness.Traffic, calls int) string {
	n := float64(calls)
	return fmt.Sprintf("of a call: requests %.3g, new connections %.3g, bytes %.0f up, %.0f down",
		float64(t.Requests)/n, float64(t.Connections)/n, float64(t.Up)/n, float64(t.Down)/n)
}

func oneRoundTrip(t harness.Traffic, calls int) target {
	return target{"1 request, no new connection", t.Requests == int64(calls) && t.Connections == 0}
}
