package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/freeport"
)

// startUp measures how long the programs take to be ready, and how big they are.
func startUp(ctx context.Context, b *bench) ([]row, error) {
	kernels, health, err := kernelStarts(ctx, b)
	if err != nil {
		return nil, err
	}
	relay, err := relayStarts(ctx, b)
	if err != nil {
		return nil, err
	}
	bare, ready := kernels[0], kernels[1]
	healthRow := latency("executor: start to the answer of /health", health)
	healthRow.target = within(health.median(), 100*time.Millisecond)
	relayRow := latency("relay: start to the answer of initialize", relay)
	relayRow.target = within(relay.median(), 30*time.Millisecond)
	rows := []row{
		healthRow,
		latency("launching the bare kernel, to its kernel_info", bare),
		ratioAtMost(latency("executor: start to a ready kernel", ready).comparedTo("bare kernel", ready, bare), 1.2),
		relayRow,
	}
	sizes, err := sizes(ctx, b)
	return append(rows, sizes...), err
}

// kernelStarts measures a bare kernel and an executor in turn, and on the way how long the
// executor takes to answer at all.
func kernelStarts(ctx context.Context, b *bench) (kernels []samples, health samples, err error) {
	var round *bench
	end := func() error {
		round.close()
		return nil
	}
	kernels, err = timing{n: 9, warmUps: 1}.inTurn(ctx,
		way{name: "bare kernel", after: end, do: func(ctx context.Context) error {
			round = b.child(b.name)
			_, err := round.bareKernel(ctx)
			return err
		}},
		way{name: "executor", after: end, do: func(ctx context.Context) error {
			round = b.child(b.name)
			took, err := round.executorToKernel(ctx)
			health = append(health, took)
			return err
		}})
	return kernels, health, err
}

// executorToKernel starts an executor, returns when its kernel is ready, and says when
// /health answered.
func (b *bench) executorToKernel(ctx context.Context) (health time.Duration, err error) {
	address, err := freeport.Address()
	if err != nil {
		return 0, err
	}
	dir, err := b.folder(b.memory)
	if err != nil {
		return 0, err
	}
	c, err := b.client("http://" + address)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	config := b.executorConfig(dir)
	config.Listen = address
	started := make(chan error, 1)
	began := time.Now()
	go func() {
		e, err := harness.StartExecutor(ctx, config)
		if err == nil {
			b.atEnd(func() { stop(e) })
		}
		started <- err
	}()
	if err = awaitOK(ctx, "http://"+address+contract.PathHealth); err == nil {
		health = time.Since(began)
		err = awaitKernel(ctx, c)
	}
	return health, errors.Join(err, <-started)
}

// awaitOK asks every millisecond.
func awaitOK(ctx context.Context, url string) error {
	every := time.NewTicker(time.Millisecond)
	defer every.Stop()
	for {
		if res, err := http.Get(url); err == nil {
			res.Body.Close()
			return nil
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func awaitKernel(ctx context.Context, c *client.Client) error {
	return harness.Poll(ctx, func() (bool, error) {
		k, err := c.Kernel(ctx)
		return k.Status == contract.KernelIdle, err
	})
}

func relayStarts(ctx context.Context, b *bench) (samples, error) {
	var round *bench
	s, err := timing{n: 30, warmUps: 2}.inTurn(ctx, way{
		name: "relay",
		do: func(ctx context.Context) error {
			round = b.child(b.name)
			_, err := round.host(ctx, "http://127.0.0.1:1")
			return err
		},
		after: func() error { round.close(); return nil },
	})
	if err != nil {
		return nil, err
	}
	return s[0], nil
}

// sizes returns what the programs take in memory after one call, and on disk.
func sizes(ctx context.Context, b *bench) ([]row, error) {
	p, err := b.pair(ctx)
	if err != nil {
		return nil, err
	}
	if err := quickCall(ctx, p.host); err != nil {
		return nil, err
	}
	var rows []row
	for _, program := range []struct {
		name, path string
		pid        int
		mostMB     float64
	}{
		{"executor", b.binaries.Executor, p.executor.PID(), 16},
		{"relay", b.binaries.Relay, p.host.PID(), 14},
	} {
		m, err := harness.MemoryOf(program.pid)
		if err != nil {
			return rows, err
		}
		info, err := os.Stat(program.path)
		if err != nil {
			return rows, err
		}
		mb := float64(info.Size()) / 1e6
		memory := row{what: program.name + ": RSS after one call", figure: fmt.Sprintf("%.1f MiB", m.Now)}
		if program.name == "relay" {
			memory.target = atMost(m.Now, 20, " MiB")
		}
		rows = append(rows, memory,
			row{what: program.name + ": size of the program", figure: fmt.Sprintf("%.1f MB", mb), target: atMost(mb, program.mostMB, " MB")})
	}
	return rows, nil
}
