package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

// untilStopped prints lines until a file named stop exists.
const untilStopped = `
import itertools, os, time
for n in itertools.count():
  print('line', n, flush=True)
  time.sleep(.05)
  if os.path.exists('stop'):
    break
`

// A host cancels a call, or goes away and closes the relay's stdin during one. The run goes on,
// it runs once, the next answer names it, and another host reads all of its output.
func TestAHostThatCancelsOrGoesAwayLosesNothing(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, h *harness.Host, cancel func(), again func() *harness.Host) *harness.Host{
		"cancels": func(_ *testing.T, h *harness.Host, cancel func(), _ func() *harness.Host) *harness.Host {
			cancel()
			return h
		},
		"goes away": func(t *testing.T, h *harness.Host, _ func(), again func() *harness.Host) *harness.Host {
			h.Close()
			gone(t, h.PID())
			return again()
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, dir := borrowExecutor(t, stacks.Old(t)), t.TempDir()
			start := func() *harness.Host {
				return startHost(t, e.Ready.LocalURL, harness.HostConfig{Dir: dir})
			}
			h := start()
			ctx, cancel := context.WithCancel(within.Context(t))
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				a, err := h.Call(ctx, "run_code_long", map[string]any{"code": "open('began', 'a').write('x')\n" + untilStopped})
				if err == nil && a.Error() == "call_cancelled" { // it may still be sent to a host that has closed stdin
					err = context.Canceled
				}
				ended <- err
			}()
			began := filepath.Join(e.Config.Dir, "began")
			must(t, harness.Poll(within.Context(t), func() (bool, error) {
				_, err := os.Stat(began)
				return err == nil, nil
			}))
			next := leave(t, h, cancel, start)
			if err := <-ended; err == nil {
				t.Error("the call was answered: the host left too late")
			}
			c := relayClient(t, e)
			list, err := c.List(within.Context(t), 1)
			must(t, err)
			left := fmt.Sprintf("s; its run %s is still running; do not submit it again.", list.Executions[0].ExecutionID)
			must(t, harness.Poll(within.Context(t), func() (bool, error) { // the SDK may send the cancellation after the next call
				a := call(t, next, "check_colab_connection", nil)
				want(t, a, map[string]any{"success": true})
				return strings.HasPrefix(a.Text, "An earlier call was given up after ") && strings.Contains(a.Text, left), nil
			}))
			must(t, os.WriteFile(filepath.Join(e.Config.Dir, "stop"), nil, 0o600))
			other := startHost(t, e.Ready.LocalURL, harness.HostConfig{})
			stdout, last := follow(t, other, list.Executions[0].ExecutionID, 0)
			want(t, last, map[string]any{"status": "succeeded"})
			if n := strings.Count(stdout, "\n"); n == 0 || stdout != lines(n) {
				t.Errorf("the output is %q", stdout)
			}
			if text, err := os.ReadFile(began); err != nil || string(text) != "x" {
				t.Errorf("the run began %d times, %v", len(text), err)
			}
		})
	}
}
