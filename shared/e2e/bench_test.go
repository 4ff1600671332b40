package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/executor/jupyter"
	"colabrelay/relay/client"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

// bare is a client that talks to the executor's kernel directly. No run can be faster.
func bare(b *testing.B, e *harness.Executor) *jupyter.Client {
	b.Helper()
	var record struct{ PID int }
	data, err := os.ReadFile(e.Config.Dir + "/.colab-relay/kernel.json")
	if err != nil {
		b.Fatal(err)
	}
	if err := json.Unmarshal(data, &record); err != nil {
		b.Fatal(err)
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", record.PID))
	if err != nil {
		b.Fatal(err)
	}
	args := strings.Split(string(cmdline), "\x00")
	file, err := os.ReadFile(args[slices.Index(args, "-f")+1])
	if err != nil {
		b.Fatal(err)
	}
	var info jupyter.ConnectionInfo
	if err := json.Unmarshal(file, &info); err != nil {
		b.Fatal(err)
	}
	c, err := jupyter.Dial(within(b, time.Minute), info, jupyter.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

// executeBare runs code until its reply and idle status, and counts its stream bytes.
func executeBare(b *testing.B, c *jupyter.Client, code string) (streamed int) {
	b.Helper()
	ctx := context.Background()
	id, err := c.Send(ctx, jupyter.Shell, jupyter.MsgExecuteRequest, jupyter.ExecuteRequest{Code: code, StoreHistory: true})
	if err != nil {
		b.Fatal(err)
	}
	for replied, idle := false, false; !replied || !idle; {
		m, err := c.Receive(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if m.ParentHeader.MsgID != id {
			continue
		}
		switch m.Header.MsgType {
		case jupyter.MsgExecuteReply:
			replied = true
		case jupyter.MsgStatus:
			idle = bytes.Contains(m.Content, []byte(`"idle"`))
		case jupyter.MsgStream:
			streamed += len(m.Content)
		}
	}
	return streamed
}

func relayClient(b testing.TB, e *harness.Executor) *client.Client {
	b.Helper()
	key, err := auth.NewSecret(secret)
	if err != nil {
		b.Fatal(err)
	}
	c, err := client.New(client.Config{BaseURL: e.Ready.LocalURL, Secret: key})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// BenchmarkQuickRun measures 1+1 in three ways on the same kernel: bare, signed POST and
// tools/call. They alternate, so that the machine's noise affects all of them.
func BenchmarkQuickRun(b *testing.B) {
	e := startExecutor(b, harness.ExecutorConfig{})
	h := startHost(b, e.Ready.LocalURL, harness.HostConfig{})
	kernel, http := bare(b, e), relayClient(b, e)
	var bares, posts, calls []time.Duration
	for b.Loop() {
		bares = append(bares, timed(func() { executeBare(b, kernel, "1+1") }))
		posts = append(posts, timed(func() {
			if _, err := http.Submit(b.Context(), contract.Submit{Code: "1+1", WaitSeconds: 10}); err != nil {
				b.Fatal(err)
			}
		}))
		calls = append(calls, timed(func() {
			if _, err := h.Call(b.Context(), "run_code_quick", map[string]any{"code": "1+1"}); err != nil {
				b.Fatal(err)
			}
		}))
	}
	reportP50(b, "bare", bares, bares)
	reportP50(b, "POST", posts, bares)
	reportP50(b, "tool", calls, bares)
	b.ReportMetric(residentMB(b, e.PID()), "executor-MB")
	b.ReportMetric(residentMB(b, h.PID()), "relay-MB")
}

func timed(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

func p50(all []time.Duration) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return float64(sorted[len(sorted)/2]) / float64(time.Millisecond)
}

func reportP50(b *testing.B, name string, all, base []time.Duration) {
	b.ReportMetric(p50(all), name+"-p50-ms")
	b.ReportMetric(p50(all)/p50(base), name+"/bare")
}

func residentMB(b testing.TB, pid int) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var kb float64
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		b.Fatal(err)
	}
	return kb / 1024
}

// BenchmarkFlood measures 100 MB of prints: the rate relative to the bare kernel, and how
// much the executor's memory grows.
func BenchmarkFlood(b *testing.B) {
	const flood = "for _ in range(1_000_000): print('x' * 99)"
	e := startExecutor(b, harness.ExecutorConfig{Python: stacks.Old(b).Python})
	http := relayClient(b, e)
	before := residentMB(b, e.PID())
	peak := before
	var ours, bares []time.Duration
	for b.Loop() {
		ours = append(ours, timed(func() {
			x, err := http.Submit(b.Context(), contract.Submit{Code: flood, TimeoutSeconds: 120})
			if err != nil {
				b.Fatal(err)
			}
			// A tight loop would exceed the rate limit.
			err = harness.Poll(within(b, time.Minute), func() (bool, error) {
				peak = max(peak, residentMB(b, e.PID()))
				list, err := http.List(b.Context(), 1)
				if err == nil {
					x = list.Executions[0]
				}
				return x.Status.Finished(), err
			})
			if err != nil || x.Status != contract.StatusSucceeded {
				b.Fatal(x.Status, err)
			}
		}))
	}
	alone := startExecutor(b, harness.ExecutorConfig{Python: stacks.Old(b).Python})
	kernel := bare(b, alone)
	for range len(ours) {
		bares = append(bares, timed(func() { executeBare(b, kernel, flood) }))
	}
	b.ReportMetric(p50(ours)/1000, "executor-s")
	b.ReportMetric(p50(bares)/1000, "bare-s")
	b.ReportMetric(p50(bares)/p50(ours), "rate/bare")
	b.ReportMetric(peak-before, "grown-MB")
}
