package main

import (
	"context"

	"colabrelay/executor/jupyter"
	"colabrelay/relay/client"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

// onePlusOne is what the quick runs execute.
const onePlusOne = "1+1"

// quickRuns measures the ways to run 1+1 in the same kernel.
func quickRuns(ctx context.Context, b *bench) ([]row, error) {
	p, err := b.pair(ctx)
	if err != nil {
		return nil, err
	}
	kernel, err := b.kernelOf(ctx, p.executor)
	if err != nil {
		return nil, err
	}
	s, err := timing{n: 1000, warmUps: 100}.inTurn(ctx, bareRun(kernel), post(p.client), toolCall(p.host))
	if err != nil {
		return nil, err
	}
	bare, posts, tools := s[0], s[1], s[2]
	return []row{
		latency("the bare kernel: our Jupyter client on the same kernel", bare),
		ratioAtMost(latency("POST /v1/executions through relay/client", posts).comparedTo("bare kernel", posts, bare), 1.12),
		ratioAtMost(latency("run_code_quick over stdio", tools).comparedTo("bare kernel", tools, bare), 1.25),
	}, nil
}

func bareRun(kernel *jupyter.Client) way {
	return way{name: "bare kernel", do: func(ctx context.Context) error { return executeBare(ctx, kernel, onePlusOne) }}
}

func post(c *client.Client) way {
	return way{name: "POST", do: func(ctx context.Context) error {
		_, err := c.Submit(ctx, contract.Submit{Code: onePlusOne, WaitSeconds: 10})
		return err
	}}
}

func toolCall(h *harness.Host) way {
	return way{name: "tool call", do: func(ctx context.Context) error {
		_, err := call(ctx, h, "run_code_quick", map[string]any{"code": onePlusOne})
		return err
	}}
}
