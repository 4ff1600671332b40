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
func startUp(ctx context.Context, b *bench) []row {
	kernels, health := kernelStarts(ctx, b)
	relay := relayStarts(ctx, b)
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
	return append(rows, sizes(ctx, b)...)
}

// kernelStarts measures a bare kernel and an executor in turn, and on the way how long the
// executor takes to answer at all.
func kernelStarts(ctx context.Context, b *bench) (kernels []samples, health samples) {
	var round *bench
	end := func() { round.close() }
	kernels = timing{n: 9, warmUps: 1}.inTurn(ctx,
		way{name: "bare kernel", after: end, do: func(ctx context.Context) {
			round = b.child(b.name)
			round.bareKernel(ctx)
		}},
		way{name: "executor", after: end, do: func(ctx context.Context) {
			round = b.child(b.name)
			health = append(health, round.executorToKernel(ctx))
		}})
	return kernels, health
}

// executorToKernel starts an executor, returns when its kernel is ready, and says when
// /health answered.
func (b *bench) executorToKernel(ctx context.Context) (health time.Duration) {
	address := harness.Must(freeport.Address())
	dir := b.folder(b.memory)
	c := b.client("http://" + address)
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
	awaitErr := harness.Try(func() {
		awaitOK(ctx, "http://"+address+contract.PathHealth)
		health = time.Since(began)
		awaitKernel(ctx, c)
	})
	harness.Check(errors.Join(awaitErr, <-started))
	return health
}

// awaitOK asks every millisecond.
func awaitOK(ctx context.Context, url string) {
	every := time.NewTicker(time.Millisecond)
	defer every.Stop()
	for {
		if res, err := http.Get(url); err == nil {
			res.Body.Close()
			return
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			harness.Check(ctx.Err())
		}
	}
}

func awaitKernel(ctx context.Context, c *client.Client) {
	harness.Check(harness.Poll(ctx, func() (bool, error) {
		k, err := c.Kernel(ctx)
		return k.Status == contract.KernelIdle, err
	}))
}

func relayStarts(ctx context.Context, b *bench) samples {
	var round *bench
	return timing{n: 30, warmUps: 2}.inTurn(ctx, way{
		name: "relay",
		do: func(ctx context.Context) {
			round = b.child(b.name)
			round.host(ctx, "http://127.0.0.1:1")
		},
		after: func() { round.close() },
	})[0]
}

// sizes returns what the programs take in memory after one call, and on disk.
func sizes(ctx context.Context, b *bench) []row {
	p := b.pair(ctx)
	quickCall(ctx, p.host)
	var rows []row
	for _, program := range []struct {
		name, path string
		pid        int
		mostMB     float64
	}{
		{"executor", b.binaries.Executor, p.executor.PID(), 16},
		{"relay", b.binaries.Relay, p.host.PID(), 14},
	} {
		m := harness.Must(harness.MemoryOf(program.pid))
		info := harness.Must(os.Stat(program.path))
		mb := float64(info.Size()) / 1e6
		memory := row{what: program.name + ": RSS after one call", figure: fmt.Sprintf("%.1f MiB", m.Now)}
		if program.name == "relay" {
			memory.target = atMost(m.Now, 20, " MiB")
		}
		rows = append(rows, memory,
			row{what: program.name + ": size of the program", figure: fmt.Sprintf("%.1f MB", mb), target: atMost(mb, program.mostMB, " MB")})
	}
	return rows
}
