package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/auth"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

// secret is a valid secret that protects nothing.
const secret = "the secret of make bench: 32 bytes or more"

// bench is what the topics share: programs, folders, and what must be ended.
type bench struct {
	binaries harness.Binaries
	python   string // interpreter of the kernels
	bridge   string // interpreter of the old-style bridge; empty if there is none
	memory   string // folder for everything but transfers
	disk     string // folder for transfers
	log      io.Writer

	name string // of the topic
	mu   sync.Mutex
	ends []func()
}

// newBench builds the programs, unless EXECUTOR_BIN and RELAY_BIN name them, and creates
// a folder in memory and one on disk.
func newBench(ctx context.Context, memory, disk string, log io.Writer) (*bench, error) {
	b := &bench{log: log, name: "bench"}
	environments := filepath.Join(stacks.Root(), ".python")
	b.python = filepath.Join(environments, "old", "bin", "python")
	if _, err := os.Stat(b.python); err != nil {
		return nil, fmt.Errorf("no Python with ipykernel at %q: run make python", b.python)
	}
	bridge := filepath.Join(environments, "bridge", "bin", "python")
	if _, err := os.Stat(bridge); err == nil {
		b.bridge = bridge
	}
	var err error
	if b.memory, err = b.folder(memory); err == nil {
		b.disk, err = b.folder(disk)
	}
	if err == nil {
		b.binaries, err = harness.Build(ctx, b.memory)
	}
	if err != nil {
		b.close()
	}
	return b, err
}

// child returns a bench for one topic, which ends what the topic started.
func (b *bench) child(name string) *bench {
	return &bench{binaries: b.binaries, python: b.python, bridge: b.bridge, memory: b.memory, disk: b.disk, log: b.log, name: name}
}

func (b *bench) progress(format string, args ...any) {
	fmt.Fprintf(b.log, "%s %-11s %s\n", time.Now().Format(time.TimeOnly), b.name, fmt.Sprintf(format, args...))
}

// atEnd has f called by close. What was started last ends first.
func (b *bench) atEnd(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ends = append(b.ends, f)
}

func (b *bench) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, end := range slices.Backward(b.ends) {
		end()
	}
	b.ends = nil
}

// folder creates a folder that is deleted at the end.
func (b *bench) folder(in string) (string, error) {
	dir, err := os.MkdirTemp(in, "bench-")
	if err == nil {
		b.atEnd(func() { os.RemoveAll(dir) })
	}
	return dir, err
}

// executor starts an executor whose files are in a new folder below in.
func (b *bench) executor(ctx context.Context, in string) (*harness.Executor, error) {
	dir, err := b.folder(in)
	if err != nil {
		return nil, err
	}
	e, err := harness.StartExecutor(ctx, b.executorConfig(dir))
	if err == nil {
		b.atEnd(func() { stop(e) })
	}
	return e, err
}

// executorConfig keeps an executor's and its kernel's temporary files and history in dir.
func (b *bench) executorConfig(dir string) harness.ExecutorConfig {
	return harness.ExecutorConfig{
		Binary: b.binaries.Executor, Python: b.python, Dir: dir, Secret: secret,
		Env: []string{"HOME=" + dir, "TMPDIR=" + b.memory},
	}
}

func stop(e *harness.Executor) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = e.Stop(ctx)
}

// client returns a client of the executor at an address.
func (b *bench) client(url string) (*client.Client, error) {
	key, err := auth.NewSecret(secret)
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{BaseURL: url, Secret: key})
	if err == nil {
		b.atEnd(c.Close)
	}
	return c, err
}

// host starts an MCP host with a relay that is set to the executor at an address.
func (b *bench) host(ctx context.Context, url string) (*harness.Host, error) {
	c, err := b.relayConfig(url)
	if err != nil {
		return nil, err
	}
	return b.startHost(ctx, c)
}

// relayConfig is a relay that is set to the executor at an address.
func (b *bench) relayConfig(url string) (harness.HostConfig, error) {
	dir, err := b.folder(b.memory)
	return harness.HostConfig{Binary: b.binaries.Relay, Dir: dir, Env: []string{"COLAB_URL=" + url, "COLAB_SECRET=" + secret}}, err
}

func (b *bench) startHost(ctx context.Context, c harness.HostConfig) (*harness.Host, error) {
	h, err := harness.StartHost(ctx, c)
	if err == nil {
		b.atEnd(func() { h.Close() })
	}
	return h, err
}

// wire starts a proxy before an address of the form http://host:port and returns it with
// the address to use instead.
func (b *bench) wire(url string, roundTrip time.Duration) (*harness.Wire, string, error) {
	w, err := harness.NewSlowWire(url[len("http://"):], roundTrip)
	if err != nil {
		return nil, "", err
	}
	b.atEnd(w.Close)
	return w, "http://" + w.Addr, nil
}

// pair is an executor with what talks to it.
type pair struct {
	executor *harness.Executor
	client   *client.Client
	host     *harness.Host
}

// pair starts an executor, a client and a relay.
func (b *bench) pair(ctx context.Context) (p pair, err error) {
	if p.executor, err = b.executor(ctx, b.memory); err != nil {
		return p, err
	}
	if p.client, err = b.client(p.executor.Ready.LocalURL); err != nil {
		return p, err
	}
	p.host, err = b.host(ctx, p.executor.Ready.LocalURL)
	return p, err
}

// call calls a tool, which must succeed.
func call(ctx context.Context, h *harness.Host, tool string, args map[string]any) (harness.Answer, error) {
	a, err := h.Call(ctx, tool, args)
	if err == nil && a.IsError {
		err = errors.New(tool + ": " + a.Text)
	}
	return a, err
}

// samples are the times that one way of doing something took.
type samples []time.Duration

// quantile returns the sample below which a share q of all are.
func (s samples) quantile(q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func (s samples) median() time.Duration { return s.quantile(0.5) }

// over returns the ratio of the medians.
func (s samples) over(base samples) float64 { return float64(s.median()) / float64(base.median()) }

// way is one of several ways to do the same thing.
type way struct {
	name  string
	do    func(context.Context) error
	after func() error // not timed; nil: nothing
}

// timing is how much inTurn measures.
type timing struct {
	n       int // samples of each way
	warmUps int // calls of each way before them
}

// inTurn measures ways in turn, in a random order each round, so that the machine's noise
// and what a way leaves behind affect all of them. The samples are in the ways' order.
func (t timing) inTurn(ctx context.Context, ways ...way) ([]samples, error) {
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]samples, len(ways))
	for round := range t.warmUps + t.n {
		for _, i := range random.Perm(len(ways)) {
			took, err := timed(func() error { return ways[i].do(ctx) })
			if err == nil && ways[i].after != nil {
				err = ways[i].after()
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", ways[i].name, err)
			}
			if round >= t.warmUps {
				all[i] = append(all[i], took)
			}
		}
	}
	return all, nil
}

func timed(f func() error) (time.Duration, error) {
	began := time.Now()
	err := f()
	return time.Since(began), err
}

// noise returns bytes that do not compress.
func noise(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(p)
	return p
}
