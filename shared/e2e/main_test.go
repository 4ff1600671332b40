// Package e2e tests both real programs together: a real kernel, real HTTP, a
// real MCP client on stdio. Only tests and their helpers are below this folder.
package e2e

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

// secret is a valid secret that protects nothing.
const secret = "an end-to-end test's secret, 32 bytes or more"

// atOnce is how many tests run at once: they mostly wait for programs.
const atOnce = "4"

var (
	binaries harness.Binaries
	pool     = harness.Pool{Secret: secret}
)

func TestMain(m *testing.M) {
	flag.Parse()
	err := flag.Set("test.parallel", atOnce)
	dir := ""
	if err == nil {
		dir, err = os.MkdirTemp("", "e2e-")
	}
	if err == nil {
		binaries, err = harness.Build(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	pool.Binary = binaries.Executor
	os.Setenv("EXECUTOR_BIN", binaries.Executor) // for smalldisk, which runs a test in a child
	os.Setenv("RELAY_BIN", binaries.Relay)
	code := m.Run()
	pool.Close()
	os.RemoveAll(dir)
	os.Exit(code)
}

// startExecutor starts an executor that ends with the test.
func startExecutor(t testing.TB, c harness.ExecutorConfig) *harness.Executor {
	t.Helper()
	c.Binary, c.Secret = binaries.Executor, cmp.Or(c.Secret, secret)
	if c.Python == "" {
		c.Python = stacks.Old(t).Python
	}
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	e, err := harness.StartExecutor(within.Context(t), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), within.Limit)
		defer cancel()
		if err := e.Stop(ctx); err != nil && !strings.Contains(err.Error(), "killed") {
			t.Errorf("stopping the executor: %v", err)
		}
		if t.Failed() {
			t.Logf("the executor printed:\n%s", e.Output)
		}
	})
	return e
}

// borrowExecutor returns an executor that other tests used before. It is for tests that need
// no new kernel and no folder of their own. They may kill it.
func borrowExecutor(t testing.TB, s stacks.Stack) *harness.Executor {
	t.Helper()
	e := pool.Borrow(t, s.Python)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the executor printed:\n%s", e.Output)
		}
		select {
		case <-e.Exited():
			return
		default:
		}
		if err := awaitIdle(e); err != nil { // a run of this test is not over
			e.Kill()
		}
	})
	return e
}

// awaitIdle waits until the kernel is idle, as it is a moment after an interrupt.
func awaitIdle(e *harness.Executor) error {
	key, err := auth.NewSecret(secret)
	if err != nil {
		return err
	}
	c, err := client.New(client.Config{BaseURL: e.Ready.LocalURL, Secret: key})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return harness.Poll(ctx, func() (bool, error) {
		k, err := c.Kernel(ctx)
		return k.Status == contract.KernelIdle, err
	})
}

// startHost starts an MCP host whose relay is set to url.
func startHost(t testing.TB, url string, c harness.HostConfig) *harness.Host {
	t.Helper()
	c.Binary = binaries.Relay
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	c.Env = append([]string{"COLAB_URL=" + url, "COLAB_SECRET=" + secret, "RELAY_HOLD=40s"}, c.Env...)
	h, err := harness.StartHost(within.Context(t), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.Close()
		if t.Failed() {
			t.Logf("the relay logged:\n%s", h.Stderr)
		}
	})
	return h
}

// newWire starts a proxy in front of an executor.
func newWire(t testing.TB, e *harness.Executor) *harness.Wire {
	t.Helper()
	w, err := harness.NewWire(strings.TrimPrefix(e.Ready.LocalURL, "http://"))
	must(t, err)
	t.Cleanup(w.Close)
	return w
}

// relayClient returns a client of the executor's API.
func relayClient(t testing.TB, e *harness.Executor) *client.Client {
	t.Helper()
	key, err := auth.NewSecret(secret)
	must(t, err)
	c, err := client.New(client.Config{BaseURL: e.Ready.LocalURL, Secret: key})
	must(t, err)
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

// pair borrows an executor on a stack, and starts a host that is connected to it.
func pair(t testing.TB, s stacks.Stack) (*harness.Executor, *harness.Host) {
	t.Helper()
	e := borrowExecutor(t, s)
	return e, startHost(t, e.Ready.LocalURL, harness.HostConfig{})
}

// call calls a tool, which must answer. If the executor did not answer within the relay's hold,
// which a busy machine can cause, it makes the same call again, as the relay's answer says: that
// finds what the first one began.
func call(t testing.TB, h *harness.Host, tool string, args map[string]any) harness.Answer {
	t.Helper()
	a := callOnce(t, h, tool, args)
	for limit := within.Context(t); a.Error() == "timeout" && limit.Err() == nil; {
		a = callOnce(t, h, tool, args)
	}
	return a
}

// callOnce calls a tool, which must answer.
func callOnce(t testing.TB, h *harness.Host, tool string, args map[string]any) harness.Answer {
	t.Helper()
	a, err := h.Call(within.Context(t), tool, args)
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return a
}

// quick runs code to its end, or until it asks for input.
func quick(t testing.TB, h *harness.Host, code string) harness.Answer {
	t.Helper()
	a := call(t, h, "run_code_quick", map[string]any{"code": code})
	for a.String("status") == "running" || a.String("status") == "queued" { // of a short hold on a busy machine
		a = call(t, h, "get_execution", map[string]any{"execution_id": a.String("execution_id"), "wait_seconds": 20})
	}
	return a
}

// begin runs code and reads its stdout until that has the words. It returns the stdout, and the last
// answer, whose next_offset is where the next read goes on.
func begin(t testing.TB, h *harness.Host, code, words string) (stdout string, a harness.Answer) {
	t.Helper()
	a = call(t, h, "run_code_long", map[string]any{"code": code})
	for stdout = a.String("stdout"); !strings.Contains(stdout, words); stdout += a.String("stdout") {
		if a = call(t, h, "get_execution", map[string]any{"execution_id": a.String("execution_id"), "offset": a.Int("next_offset"), "wait_seconds": 1}); a.Fields["can_continue"] != true {
			t.Fatalf("the run ended without %q: %s", words, a.Text)
		}
	}
	return stdout, a
}

// want fails if the answer's fields do not have these values.
func want(t testing.TB, a harness.Answer, fields map[string]any) {
	t.Helper()
	for name, value := range fields {
		if got := fmt.Sprint(a.Fields[name]); got != fmt.Sprint(value) {
			t.Errorf("%s = %q, want %q\nanswer: %s", name, got, value, a.Text)
		}
	}
}

// follow reads an execution's stdout from offset until the execution has ended.
func follow(t testing.TB, h *harness.Host, id string, offset int64) (stdout string, last harness.Answer) {
	t.Helper()
	var all strings.Builder
	for offline := 0; ; {
		a := call(t, h, "get_execution", map[string]any{"execution_id": id, "offset": offset, "wait_seconds": 20})
		if offline++; a.Error() == "tunnel_offline" && offline < 20 { // a reconnect may outlast a call
			continue
		}
		if a.Fields["truncated"] == true { // it has head and tail of what a busy machine read late
			a = call(t, h, "get_execution", map[string]any{"execution_id": id, "offset": offset})
		}
		all.WriteString(a.String("stdout"))
		status := a.String("status")
		next := a.Int("next_offset")
		if status != "running" && status != "queued" && (next == offset || a.Fields["truncated"] != true) {
			return all.String(), a
		}
		offset = next
	}
}
