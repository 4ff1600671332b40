package main

import (
	"context"
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
func newBench(ctx context.Context, log io.Writer) (*bench, error) {
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
	err := harness.Try(func() {
		b.memory, b.disk = b.folder("/dev/shm"), b.folder("")
		b.binaries = harness.Must(harness.Build(ctx, b.memory))
	})
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
func (b *bench) folder(in string) string {
	dir := harness.Must(os.MkdirTemp(in, "bench-"))
	b.atEnd(func() { os.RemoveAll(dir) })
	return dir
}

// executor starts an executor whose files are in a new folder below in.
func (b *bench) executor(ctx context.Context, in string) *harness.Executor {
	dir := b.folder(in)
	e := harness.Must(harness.StartExecutor(ctx, b.executorConfig(dir)))
	b.atEnd(func() { stop(e) })
	return e
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
func (b *bench) client(url string) *client.Client {
	key := harness.Must(auth.NewSecret(secret))
	c := harness.Must(client.New(client.Config{BaseURL: url, Secret: key}))
	b.atEnd(c.Close)
	return c
}

// host starts an MCP host with a relay that is set to the executor at an address.
func (b *bench) host(ctx context.Context, url string) *harness.Host {
	return b.startHost(ctx, b.relayConfig(url))
}

// relayConfig is a relay that is set to the executor at an address.
func (b *bench) relayConfig(url string) harness.HostConfig {
	dir := b.folder(b.memory)
	return harness.HostConfig{Binary: b.binaries.Relay, Dir: dir, Env: []string{"COLAB_URL=" + url, "COLAB_SECRET=" + secret}}
}

func (b *bench) startHost(ctx context.Context, c harness.HostConfig) *harness.Host {
	h := harness.Must(harness.StartHost(ctx, c))
	b.atEnd(func() { h.Close() })
	return h
}

// wire starts a proxy before an address of the form http://host:port and returns it with
// the address to use instead.
func (b *bench) wire(url string, roundTrip time.Duration) (*harness.Wire, string) {
	w := harness.Must(harness.NewSlowWire(url[len("http://"):], roundTrip))
	b.atEnd(w.Close)
	return w, "http://" + w.Addr
}

// pair is an executor with what talks to it.
type pair struct {
	executor *harness.Executor
	client   *client.Client
	host     *harness.Host
}

// pair starts an executor, a client and a relay.
func (b *bench) pair(ctx context.Context) (p pair) {
	p.executor = b.executor(ctx, b.memory)
	p.client = b.client(p.executor.Ready.LocalURL)
	p.host = b.host(ctx, p.executor.Ready.LocalURL)
	return p
}

// call calls a tool, which must succeed.
func call(ctx context.Context, h *harness.Host, tool string, args map[string]any) harness.Answer {
	a := harness.Must(h.Call(ctx, tool, args))
	harness.FailIf(a.IsError, "%s: %s", tool, a.Text)
	return a
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
	do    func(context.Context)
	after func() // not timed; nil: nothing
}

// timing is how much inTurn measures.
type timing struct {
	n       int // samples of each way
	warmUps int // calls of each way before them
}

// inTurn measures ways in turn, in a random order each round, so that the machine's noise
// and what a way leaves behind affect all of them. The samples are in the ways' order.
func (t timing) inTurn(ctx context.Context, ways ...way) []samples {
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]samples, len(ways))
	for round := range t.warmUps + t.n {
		for _, i := range random.Perm(len(ways)) {
			var took time.Duration
			err := harness.Try(func() {
				began := time.Now()
				ways[i].do(ctx)
				took = time.Since(began)
				if ways[i].after != nil {
					ways[i].after()
				}
			})
			harness.FailIf(err != nil, "%s: %w", ways[i].name, err)
			if round >= t.warmUps {
				all[i] = append(all[i], took)
			}
		}
	}
	return all
}

// noise returns bytes that do not compress.
func noise(n int) []byte {
	p := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(p)
	return p
}
