package main

import (
	"context"
	"fmt"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

// floodCode prints 100 MB.
const floodCode = "for _ in range(1_000_000): print('x' * 99)"

// flood measures the prints on a bare kernel and on an executor's.
func flood(ctx context.Context, b *bench) ([]row, error) {
	kernel, err := b.bareKernel(ctx)
	if err != nil {
		return nil, err
	}
	e, err := b.executor(ctx, b.memory)
	if err != nil {
		return nil, err
	}
	c, err := b.client(e.Ready.LocalURL)
	if err != nil {
		return nil, err
	}
	before, err := harness.MemoryOf(e.PID())
	if err != nil {
		return nil, err
	}
	s, err := timing{n: 5}.inTurn(ctx,
		way{name: "bare kernel", do: func(ctx context.Context) error { return executeBare(ctx, kernel, floodCode) }},
		way{name: "executor", do: func(ctx context.Context) error { return runToEnd(ctx, c, floodCode) }})
	if err != nil {
		return nil, err
	}
	after, err := harness.MemoryOf(e.PID())
	if err != nil {
		return nil, err
	}
	bare := latency("the bare kernel", s[0])
	bare.p99 = ""
	ours := latency("the executor, which keeps them on disk", s[1])
	ours.p99, ours.ratio, ours.against = "", s[0].over(s[1]), "bare kernel's rate"
	ours = ratioAtLeast(ours, 0.97)
	grown := after.Peak - before.Now
	memory := row{what: "growth of the executor's RSS", figure: fmt.Sprintf("%.0f MiB", grown), target: atMost(grown, 48, " MiB")}
	return []row{bare, ours, memory}, nil
}

// runToEnd submits code and asks now and then whether it has finished. It does not read
// the output.
func runToEnd(ctx context.Context, c *client.Client, code string) error {
	x, err := c.Submit(ctx, contract.Submit{Code: code, TimeoutSeconds: 120})
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for err == nil && !x.Status.Finished() {
		<-every.C
		var list contract.ExecutionList
		if list, err = c.List(ctx, 1); err == nil {
			x = list.Executions[0]
		}
	}
	if err == nil && x.Status != contract.StatusSucceeded {
		err = fmt.Errorf("the run ended %s: %s", x.Status, x.Reason)
	}
	return err
}
