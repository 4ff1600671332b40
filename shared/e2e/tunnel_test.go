package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// slowly returns the address of a slow connection to the edge: 30 ms and 16 MB/s each way.
func slowly(t *testing.T, edge *ngroktest.Edge) string {
	t.Helper()
	line := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "ngrok", "127.0.0.1:0", edge.Addr)
	if err := line.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(line.Stop)
	for _, way := range []string{"upstream", "downstream"} {
		for kind, how := range map[string]string{"latency": `{"latency": 30}`, "bandwidth": `{"rate": 16384}`} {
			toxic := fmt.Sprintf(`{"name": %q, "type": %q, "stream": %q, "attributes": %s}`, way+kind, kind, way, how)
			if _, err := line.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return line.Listen
}

// refuseBinds makes the edge answer n times that the address is online elsewhere, as ngrok
// does for a while after a VM has ended.
func refuseBinds(t *testing.T, edge *ngroktest.Edge, n int) {
	t.Helper()
	n += len(edge.Binds())
	edge.RefuseBind("ERR_NGROK_334")
	ctx := within(t)
	var watching sync.WaitGroup
	watching.Go(func() {
		err := harness.Poll(ctx, func() (bool, error) { return len(edge.Binds()) >= n, nil })
		if err != nil {
			t.Errorf("the address was not requested %d times: %v", n, err)
		}
		edge.RefuseBind("")
	})
	t.Cleanup(watching.Wait)
}

// dropping drops n sessions, each after it was open for pause, and returns after the
// executor has reconnected.
func dropping(ctx context.Context, edge *ngroktest.Edge, n int, pause time.Duration) error {
	online := func() (bool, error) { return edge.Online(edge.URL()), nil }
	for range n {
		stands := time.After(pause)
		if err := harness.Poll(ctx, online); err != nil {
			return err
		}
		select {
		case <-stands:
		case <-ctx.Done():
			return ctx.Err()
		}
		edge.DropSessions()
		offline := func() (bool, error) { return !edge.Online(edge.URL()), nil }
		if err := harness.Poll(ctx, offline); err != nil {
			return err
		}
	}
	return harness.Poll(ctx, online)
}

func TestASlowTunnelThatRefusesAndDropsStillServes(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	edge := ngroktest.Start(t)
	edge.Delay(300 * time.Millisecond)
	refuseBinds(t, edge, 2)
	e := startExecutor(t, harness.ExecutorConfig{Python: stacks.Old(t).Python, Env: []string{
		"NGROK_AUTHTOKEN=a-token-of-the-test", "COLAB_RELAY_NGROK_SERVER=" + slowly(t, edge), "COLAB_RELAY_NGROK_CA=" + edge.CAFile,
	}})
	if e.Ready.URL != edge.URL() {
		t.Fatalf("the executor is at %q, the edge's URL is %q", e.Ready.URL, edge.URL())
	}
	laptop := t.TempDir()
	h := startHost(t, e.Ready.URL, harness.HostConfig{Dir: laptop, Env: []string{"RELAY_HOLD=10s", "LOCAL_SAVE_DIR=" + laptop}})

	t.Run("health", func(t *testing.T) {
		if body := get(t, e.Ready.URL+"/health"); !strings.Contains(body, `"status":"ok"`) {
			t.Errorf("health: %s", body)
		}
	})
	t.Run("run", func(t *testing.T) {
		want(t, quick(t, h, "6 * 7"), map[string]any{"success": true, "result": "42"})
	})
	t.Run("20 MB each way", func(t *testing.T) { moveBothWays(t, edge, e, h) })
	t.Run("ten drops in a run", func(t *testing.T) { runAcrossDrops(t, edge, e, h) })
}

// moveBothWays uploads and downloads a file while sessions are dropped.
func moveBothWays(t *testing.T, edge *ngroktest.Edge, e *harness.Executor, h *harness.Host) {
	const size = 20_000_000
	up := filepath.Join(t.TempDir(), "up.bin")
	sum := bigFile(t, up, size)
	for _, move := range []struct {
		tool string
		args map[string]any
	}{
		{"upload_to_colab", map[string]any{"local_path": up, "remote_path": "moved.bin"}},
		{"download_from_colab", map[string]any{"remote_path": "moved.bin", "local_filename": "down.bin"}},
	} {
		ctx := within(t)
		var drops sync.WaitGroup
		drops.Go(func() {
			if err := dropping(ctx, edge, 2, 300*time.Millisecond); err != nil {
				t.Errorf("%s: dropping sessions: %v", move.tool, err)
			}
		})
		got := across(t, h, move.tool, move.args)
		drops.Wait()
		want(t, got, map[string]any{"success": true, "sha256": sum, "size_bytes": fmt.Sprint(float64(size))})
		if move.tool == "download_from_colab" {
			if there := fileDigest(t, got.String("local_path")); there != sum {
				t.Errorf("on the laptop the SHA-256 is %s, want %s", there, sum)
			}
		}
	}
	if there := fileDigest(t, filepath.Join(e.Config.Dir, "moved.bin")); there != sum {
		t.Errorf("on the VM the SHA-256 is %s, want %s", there, sum)
	}
}

// untilStopped prints lines until a file named stop exists.
const untilStopped = `
import itertools, os, time
for n in itertools.count():
  print('line', n, flush=True)
  time.sleep(.05)
  if os.path.exists('stop'):
    break
`

// stop ends a run of untilStopped.
func stop(t *testing.T, e *harness.Executor) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(e.Config.Dir, "stop"), nil, 0o600))
}

// runAcrossDrops follows a run that ends after the tenth drop.
func runAcrossDrops(t *testing.T, edge *ngroktest.Edge, e *harness.Executor, h *harness.Host) {
	logins := len(edge.Auths())
	a := call(t, h, "run_code_long", map[string]any{"code": untilStopped})
	want(t, a, map[string]any{"success": true, "status": "running"})
	var all strings.Builder
	all.WriteString(a.String("stdout"))
	ctx := within(t)
	var drops sync.WaitGroup
	drops.Go(func() {
		if err := dropping(ctx, edge, 10, 200*time.Millisecond); err != nil {
			t.Errorf("dropping sessions: %v", err)
		}
		if err := os.WriteFile(filepath.Join(e.Config.Dir, "stop"), nil, 0o600); err != nil {
			t.Error(err)
		}
	})
	id, next, failed := a.String("execution_id"), a.Int("next_offset"), 0
	for ctx.Err() == nil {
		a = call(t, h, "get_execution", map[string]any{"execution_id": id, "offset": next, "wait_seconds": 3})
		if a.IsError && a.Fields["status"] == nil { // the line was down for the whole call: an agent calls again
			failed++
			continue
		}
		all.WriteString(a.String("stdout"))
		next = a.Int("next_offset")
		if a.String("status") != "running" && a.Fields["truncated"] != true {
			break
		}
	}
	drops.Wait()
	want(t, a, map[string]any{"success": true, "status": "succeeded"})
	n := strings.Count(all.String(), "\n")
	t.Logf("%d lines across 10 drops; %d logins; %d calls found the tunnel down", n, len(edge.Auths())-logins, failed)
	if all.String() != lines(n) || n < 20 {
		t.Errorf("the output does not contain each line exactly once: %q", all.String())
	}
	if n := len(edge.Auths()) - logins; n < 10 {
		t.Errorf("the executor reconnected %d times, want 10", n)
	}
}
