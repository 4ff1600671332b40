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

// quickRuns measures the ways to run 1+1. All but the bridge use the same kernel.
func quickRuns(ctx context.Context, b *bench) ([]row, error) {
	p, err := b.pair(ctx)
	if err != nil {
		return nil, err
	}
	kernel, err := b.kernelOf(ctx, p.executor)
	if err != nil {
		return nil, err
	}
	relay, err := b.relayConfig(p.executor.Ready.LocalURL)
	if err != nil {
		return nil, err
	}
	servers := []harness.HostConfig{relay}
	if b.bridge != "" {
		url, err := b.flask(ctx)
		if err != nil {
			return nil, err
		}
		servers = append(servers, b.bridgeConfig(url))
	}
	plain, err := b.plainExchange(ctx)
	if err != nil {
		return nil, err
	}
	ways := []way{bareRun(kernel), plain, post(p.client)}
	for _, server := range servers {
		h, err := b.lineHost(server)
		if err != nil {
			return nil, err
		}
		ways = append(ways, quickLine(h))
	}
	s, err := timing{n: 1000, warmUps: 100}.inTurn(ctx, ways...)
	if err != nil {
		return nil, err
	}
	bare, exchange, posts, tools := s[0], s[1], s[2], s[3]
	rows := []row{
		latency("the bare kernel: our Jupyter client on the same kernel", bare),
		floor(exchange, bare),
		ratioAtMost(latency("POST /v1/executions through relay/client", posts).comparedTo("bare kernel", posts, bare), 1.12),
		ratioAtMost(latency("run_code_quick over stdio", tools).comparedTo("bare kernel", tools, bare), 1.25),
	}
	if b.bridge == "" {
		return rows, nil
	}
	bridge := s[4]
	r := row{what: "run_code_quick against the old-style bridge"}.comparedTo("old-style bridge", tools, bridge)
	return append(rows, latency("the old-style bridge's tool over stdio", bridge).comparedTo("bare kernel", bridge, bare), ratioAtMost(r, 1)), nil
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

// floor is the ratio that a call through HTTP would have if it took no time of its own.
func floor(exchange, bare samples) row {
	r := latency("a plain net/http POST of the same size to another program, without a kernel", exchange)
	r.ratio, r.against = float64(bare.median()+exchange.median())/float64(bare.median()), "bare kernel, with it"
	return r
}
