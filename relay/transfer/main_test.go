package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"colabrelay/relay/client"
	"colabrelay/shared/auth"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/freeport"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

// These tests use the real executor, built as in make build, with real files and real HTTP.

const secret = "a secret of relay/transfer's tests, 32 bytes or more"

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.exec != nil {
		ctx, cancel := context.WithTimeout(context.Background(), within.Limit)
		_ = shared.exec.Stop(ctx)
		cancel()
		os.RemoveAll(shared.dir)
	}
	if buildDir != "" {
		os.RemoveAll(buildDir)
	}
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// shared is the executor of all tests that call useVM.
var shared struct {
	start sync.Once
	dir   string
	exec  *harness.Executor
}

var buildDir string

// executorBinary is built by the first test that needs it, because fuzzing needs none.
var executorBinary = sync.OnceValues(func() (string, error) {
	var err error
	if buildDir, err = os.MkdirTemp("", "transfer-"); err != nil {
		return "", err
	}
	built, err := harness.Build(context.Background(), buildDir)
	return built.Executor, err
})

// vm is an executor and its client, with a connection that a test can interrupt.
type vm struct {
	t      testing.TB
	dir    string // its workdir
	listen string
	binary string // the executor
	exec   *harness.Executor
	wire   *harness.Wire
	client *client.Client
	counts *counting
}

// newVM starts a VM and makes the test parallel, because most tests mainly wait.
func newVM(t *testing.T) *vm {
	t.Helper()
	t.Parallel()
	binary, err := executorBinary()
	must(t, err)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	listen, err := freeport.Address()
	must(t, err)
	v := &vm{t: t, dir: dir, listen: listen, binary: binary}
	v.start()
	t.Cleanup(func() { v.stop() })
	v.connect()
	return v
}

// useVM returns a folder of the executor that tests share, as a VM that the test must neither stop
// nor kill, and makes the test parallel.
func useVM(t *testing.T) *vm {
	t.Helper()
	t.Parallel()
	shared.start.Do(func() {
		binary, err := executorBinary()
		must(t, err)
		shared.dir, err = os.MkdirTemp("", "transfer-vm-")
		must(t, err)
		listen, err := freeport.Address()
		must(t, err)
		v := &vm{t: t, dir: shared.dir, listen: listen, binary: binary}
		v.start()
		shared.exec = v.exec
	})
	if shared.exec == nil {
		t.Fatal("the shared executor did not start")
	}
	dir, err := os.MkdirTemp(shared.dir, "")
	must(t, err)
	dir, err = filepath.EvalSymlinks(dir)
	must(t, err)
	v := &vm{t: t, dir: dir, listen: shared.exec.Config.Listen}
	v.connect()
	return v
}

// connect makes the VM's connection and client.
func (v *vm) connect() {
	v.t.Helper()
	var err error
	v.wire, err = harness.NewWire(v.listen)
	must(v.t, err)
	v.t.Cleanup(v.wire.Close)
	v.client, v.counts = newClient(v.t, "http://"+v.wire.Addr)
}

func newClient(t testing.TB, address string) (*client.Client, *counting) {
	t.Helper()
	key, err := auth.NewSecret(secret)
	must(t, err)
	counts := &counting{}
	c, err := client.New(client.Config{BaseURL: address, Secret: key, Transport: counts.transport()})
	must(t, err)
	t.Cleanup(c.Close)
	return c, counts
}

func (v *vm) start() {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within.Limit)
	defer cancel()
	// Transfers use no kernel. That of the newest stack starts in half the time.
	all := stacks.All(v.t)
	newest := all[len(all)-1]
	var err error
	v.exec, err = harness.StartExecutor(ctx, harness.ExecutorConfig{
		Binary: v.binary, Python: newest.Python, Dir: v.dir, Secret: secret, Listen: v.listen,
	})
	must(v.t, err)
}

func (v *vm) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), within.Limit)
	defer cancel()
	if err := v.exec.Stop(ctx); err != nil && !strings.Contains(err.Error(), "killed") {
		v.t.Errorf("stopping the executor: %v", err)
	}
}

// path returns the path of a file in the VM's workdir.
func (v *vm) path(name string) string { return filepath.Join(v.dir, name) }

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fill writes size random bytes, which depend only on seed, and returns their SHA-256.
func fill(t testing.TB, path string, size int64, seed byte) string {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	sum := sha256.New()
	_, err = io.CopyN(io.MultiWriter(f, sum), rand.NewChaCha8([32]byte{seed}), size)
	must(t, err)
	return hex.EncodeToString(sum.Sum(nil))
}

func sha(t testing.TB, path string) string {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	must(t, err)
	return hex.EncodeToString(sum.Sum(nil))
}

// names returns the entries of a folder, including links and hidden files.
func names(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func wantNames(t testing.TB, dir string, want ...string) {
	t.Helper()
	// The origin of a downloaded folder is kept next to the folder.
	isOrigin := func(name string) bool { return strings.HasSuffix(name, originSuffix) }
	if got := slices.DeleteFunc(names(t, dir), isOrigin); !slices.Equal(got, want) {
		t.Errorf("%q contains %q, want %q", dir, got, want)
	}
}

// stopAfter returns a context and the report that cancels it after done bytes. Parts in
// flight may still arrive, at most inFlight.
func stopAfter(t testing.TB, done int64) (context.Context, func(Progress)) {
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	var once atomic.Bool
	return ctx, func(p Progress) {
		if p.Done >= done && once.CompareAndSwap(false, true) {
			cancel(errEnough)
		}
	}
}

var errEnough = fmt.Errorf("enough for this call")

// counting counts requests by method and path, and calls a test's function before each.
type counting struct {
	mu     sync.Mutex
	seen   map[string]int
	before func(*http.Request)
	inner  http.Transport
}

func (c *counting) transport() http.RoundTripper {
	c.inner.DisableCompression = true
	c.inner.MaxIdleConnsPerHost = 32
	return c
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	if c.seen == nil {
		c.seen = map[string]int{}
	}
	c.seen[r.Method+" "+r.URL.Path]++
	before := c.before
	c.mu.Unlock()
	if before != nil {
		before(r)
	}
	return c.inner.RoundTrip(r)
}

// CloseIdleConnections lets client.Close reach the real transport.
func (c *counting) CloseIdleConnections() { c.inner.CloseIdleConnections() }

// of returns how many requests of a kind were sent since the last reset.
func (c *counting) of(kind string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[kind]
}

func (c *counting) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.seen)
}

// step sets a function that is called before each request, from any goroutine.
func (c *counting) step(t testing.TB, f func(*http.Request)) {
	set := func(f func(*http.Request)) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.before = f
	}
	set(f)
	t.Cleanup(func() { set(nil) })
}

const (
	askContent  = "GET /v1/files/content"
	askContents = "POST /v1/files/contents"
	askStart    = "POST /v1/uploads"
	askBatch    = "POST /v1/batches"
)
