package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

// counting prints n lines, one every pause seconds.
func counting(n int, pause float64) string { return countingAfter("", n, pause) }

// countingAfter is counting that waits after its first line until a file of the VM exists.
func countingAfter(file string, n int, pause float64) string {
	return fmt.Sprintf("import os, time\nfor n in range(%d):\n  print('line', n, flush=True)\n  while n == 0 and %[2]q and not os.path.exists(%[2]q): time.sleep(.02)\n  time.sleep(%[3]g)", n, file, pause)
}

func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

func TestLongRunSurvivesTheEndOfItsCallAndItsRelayAndACut(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		e := borrowExecutor(t, s)
		network := newWire(t, e)
		hold := harness.HostConfig{Env: []string{"RELAY_HOLD=1s"}}
		first := startHost(t, "http://"+network.Addr, hold)
		beginning, a := begin(t, first, countingAfter("killed", 60, 0.01), "line 0\n")
		want(t, a, map[string]any{"success": true, "status": "running"})
		first.Kill()
		must(t, os.WriteFile(filepath.Join(e.Config.Dir, "killed"), nil, 0o600))
		second := startHost(t, "http://"+network.Addr, harness.HostConfig{})
		want(t, call(t, second, "check_colab_connection", nil), map[string]any{"success": true})
		network.CutAt(700)
		rest, last := follow(t, second, a.String("execution_id"), a.Int("next_offset"))
		want(t, last, map[string]any{"status": "succeeded"})
		if beginning+rest != lines(60) {
			t.Errorf("together the output is %q", beginning+rest)
		}
		if _, _, cuts := network.Passed(); cuts != 1 {
			t.Errorf("%d cuts", cuts)
		}
	})
}

func TestEndlessLoopIsInterruptedAtItsDeadlineAndVariablesAreKept(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		_, h := pair(t, s)
		quick(t, h, "kept = 'here'")
		a := call(t, h, "run_code_long", map[string]any{"code": "while True: pass", "timeout_seconds": 1})
		want(t, a, map[string]any{"success": false, "status": "timed_out"})
		want(t, quick(t, h, "kept"), map[string]any{"result": "'here'"})
	})
}

func TestInterruptExecutionStopsARun(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		e := borrowExecutor(t, s)
		h := startHost(t, e.Ready.LocalURL, harness.HostConfig{Env: []string{"RELAY_HOLD=1s"}})
		_, a := begin(t, h, "n = 7\nprint(n, flush=True)\nwhile True: pass", "7\n")
		want(t, a, map[string]any{"status": "running"})
		busy := call(t, h, "list_colab_variables", nil)
		if busy.Error() != "kernel_busy" {
			t.Errorf("variables during a run: %s", busy.Text)
		}
		call(t, h, "interrupt_execution", map[string]any{"execution_id": a.String("execution_id")})
		_, last := follow(t, h, a.String("execution_id"), a.Int("next_offset"))
		want(t, last, map[string]any{"status": "interrupted"})
		want(t, quick(t, h, "n"), map[string]any{"result": "7"})
	})
}

func TestKernelDeathIsReportedAndTheNextCallWorks(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		e, h := pair(t, s)
		quick(t, h, "gone = 1")
		answered := make(chan harness.Answer, 1)
		go func() {
			a, _ := h.Call(t.Context(), "run_code_quick", map[string]any{"code": "import os, time\nprint('last words', flush=True)\nwhile not os.path.exists('read'): time.sleep(.01)\nos.kill(os.getpid(), 9)"})
			answered <- a
		}()
		c := relayClient(t, e)
		within.Until(t, "the executor has the output", func() bool {
			list, err := c.List(t.Context(), 1)
			must(t, err)
			x, err := c.Execution(t.Context(), list.Executions[0].ExecutionID, 0, 0, 0)
			return err == nil && len(x.Events) == 1 && x.Events[0].Text == "last words\n"
		})
		must(t, os.WriteFile(filepath.Join(e.Config.Dir, "read"), nil, 0o600))
		a := within.Receive(t, "the answer", answered)
		want(t, a, map[string]any{"success": false, "status": "kernel_died", "stdout": "last words\n"})
		if !strings.Contains(a.Text, "SIGKILL") {
			t.Errorf("no reason: %s", a.Text)
		}
		next := quick(t, h, "'gone' in globals()")
		want(t, next, map[string]any{"success": true, "result": "False"})
		if warning := next.String("warning"); !strings.Contains(warning, "variables") {
			t.Errorf("the next answer does not say that the variables are gone: warning = %q", warning)
		}
		again := quick(t, h, "1")
		if again.String("warning") != "" {
			t.Errorf("the warning is repeated: %q", again.String("warning"))
		}
	})
}

func TestKilledExecutorLeavesNoOrphanAndLosesNoResult(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		dir := t.TempDir()
		e := startExecutor(t, harness.ExecutorConfig{Python: s.Python, Dir: dir})
		hold := harness.HostConfig{Env: []string{"RELAY_HOLD=1s"}}
		h := startHost(t, e.Ready.LocalURL, hold)
		done := quick(t, h, "import os, subprocess\nchild = subprocess.Popen(['sleep', '300'])\nprint(os.getpid(), child.pid)")
		var kernel, child int
		if _, err := fmt.Sscan(done.String("stdout"), &kernel, &child); err != nil {
			t.Fatal(err)
		}
		written, ran := begin(t, h, counting(1_000_000, 0.05), "line 0\n")
		e.Kill()
		gone(t, kernel)

		again := startExecutor(t, harness.ExecutorConfig{Python: s.Python, Dir: dir, Listen: strings.TrimPrefix(e.Ready.LocalURL, "http://")})
		gone(t, child)
		if again.Ready.InstanceID != e.Ready.InstanceID {
			t.Error("the same state dir has another instance_id")
		}
		if next := quick(t, h, "1 + 1"); next.String("result") != "2" || !strings.Contains(next.String("warning"), "variables") {
			t.Errorf("the same relay goes on with the new kernel, and says so: %s", next.Text)
		}
		want(t, call(t, h, "get_execution", map[string]any{"execution_id": done.String("execution_id")}),
			map[string]any{"status": "succeeded", "stdout": done.String("stdout")})
		lost := call(t, h, "get_execution", map[string]any{"execution_id": ran.String("execution_id")})
		want(t, lost, map[string]any{"status": "lost", "success": false})
		if !strings.HasPrefix(lost.String("stdout"), written) {
			t.Errorf("output before the kill: %q, after: %q", written, lost.String("stdout"))
		}
	})
}

// gone waits until a process has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	err := harness.Poll(within.Context(t), func() (bool, error) {
		return ended(pid), nil
	})
	if err != nil {
		t.Errorf("process %d still exists: %v", pid, err)
	}
}

// ended reports whether a process has ended. A zombie that no parent reaps counts as ended.
func ended(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestColabFrontEndCallsFailImmediately(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		_, h := pair(t, s)
		a := quick(t, h, frontEndCall)
		want(t, a, map[string]any{"success": true})
		if !strings.Contains(a.String("stdout"), "notebook cell") {
			t.Errorf("answer = %q", a.String("stdout"))
		}
	})
}

// frontEndCall does what google.colab._message.blocking_request does.
const frontEndCall = `
import time, zmq
kernel = get_ipython().kernel
kernel.session.send(kernel.iopub_socket, 'colab_request', {'request': {'key': 'X'}},
    metadata={'colab_msg_id': 7, 'colab_request_type': 'get_user_secret'}, parent=kernel.get_parent() if hasattr(kernel, 'get_parent') else kernel._parent_header)
deadline = time.time() + 10
while time.time() < deadline:
    reply = kernel.session.recv(kernel.stdin_socket, zmq.NOBLOCK)[1]
    if reply and reply['content'].get('value', {}).get('colab_msg_id') == 7:
        print(reply['content']['value']['error'])
        break
    time.sleep(.01)
`

// The connection of a submit is cut at many places, in the request and in the answer. The relay
// answers each call, and the code of each runs once.
func TestASubmitThatIsCutAnywhereRunsOnce(t *testing.T) {
	e := borrowExecutor(t, stacks.Old(t))
	w := newWire(t, e)
	h := startHost(t, "http://"+w.Addr, harness.HostConfig{})
	const code = "ran.append(len(ran))\nlen(ran)"
	want(t, quick(t, h, "ran = []"), map[string]any{"success": true})
	w.CutAt()
	want(t, quick(t, h, code), map[string]any{"result": "1"})
	up, down, _ := w.Passed()
	const points = int64(9)
	ran, inRequest, inAnswer := 1, 0, 0
	for point := range points {
		at := 1 + (up+down-2)*point/(points-1) // from the first byte to the last but one
		w.CutAt(at)
		ran++
		a := quick(t, h, code)
		if a.Error() != "" || a.String("result") != fmt.Sprint(ran) {
			t.Fatalf("cut at byte %d of %d and %d, run %d: %s", at, up, down, ran, a.Text)
		}
		if _, _, cuts := w.Passed(); cuts != 1 {
			t.Errorf("at byte %d: %d cuts", at, cuts)
		}
		if at < up {
			inRequest++
		} else {
			inAnswer++
		}
	}
	t.Logf("%d cuts in the request, %d in the answer", inRequest, inAnswer)
	if inRequest < 3 || inAnswer < 3 {
		t.Errorf("%d cuts in the request, %d in the answer", inRequest, inAnswer)
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

// A VM at the tunnel's address ends, and another one with the same domain and secret takes its
// place: the same relay uses it without a new pairing, and says so.
func TestNewVMAtTheSameDomainNeedsNoEdit(t *testing.T) {
	l := newLaptop(t)
	l.relay("init")
	own := regexp.MustCompile(`(?m)^ +EXECUTOR_SECRET +(\S+)$`).FindStringSubmatch(l.relay("init")) // which prints it again
	if own == nil {
		t.Fatal("relay init prints no secret")
	}
	edge := ngroktest.Start(t)
	newVM := func() *harness.Executor {
		return startExecutor(t, harness.ExecutorConfig{Secret: own[1], Args: []string{"--domain", "fixed.ngrok-free.app"}, Env: ngrokOf(edge)})
	}
	first := newVM()
	l.relay("pair", first.Ready.URL)
	paired := readAll(t, filepath.Join(l.dir, "config", "colab-relay", "runtimes.json"))
	h := startHost(t, "", harness.HostConfig{Dir: l.dir})
	want(t, quick(t, h, "kept = 1\nkept"), map[string]any{"success": true, "result": "1", "warning": nil})

	first.Kill()
	second := newVM()
	if second.Ready.URL != first.Ready.URL || second.Ready.InstanceID == first.Ready.InstanceID || second.Ready.URL == second.Ready.LocalURL {
		t.Fatalf("first VM %+v, second %+v: want the same URL of the tunnel and different instances", first.Ready, second.Ready)
	}
	a := quick(t, h, "'kept' in globals()")
	want(t, a, map[string]any{"success": true, "result": "False"})
	if said := a.String("warning"); !strings.Contains(said, "a new kernel on a new VM") {
		t.Errorf("the warning is %q", said)
	}
	want(t, quick(t, h, "2"), map[string]any{"success": true, "warning": nil})
	if readAll(t, filepath.Join(l.dir, "config", "colab-relay", "runtimes.json")) != paired {
		t.Error("the list of runtimes changed")
	}
}

// ngrokOf is the environment of an executor that reaches an edge of ngrok.
func ngrokOf(edge *ngroktest.Edge) []string {
	return []string{"NGROK_AUTHTOKEN=a-token-of-the-test", "COLAB_RELAY_NGROK_SERVER=" + edge.Addr, "COLAB_RELAY_NGROK_CA=" + edge.CAFile}
}

func TestRefusedTokenEndsTheExecutorWithOneLine(t *testing.T) {
	edge := ngroktest.Start(t)
	edge.RefuseToken("ERR_NGROK_105")
	_, err := harness.StartExecutor(within.Context(t), harness.ExecutorConfig{
		Binary: binaries.Executor, Python: stacks.Old(t).Python, Dir: t.TempDir(), Secret: secret, Env: ngrokOf(edge),
	})
	if err == nil {
		t.Fatal("the executor became ready")
	}
	if !strings.Contains(err.Error(), "ERR_NGROK_105") || strings.Contains(err.Error(), "a-token-of-the-test") {
		t.Errorf("it ended with: %v", err)
	}
}
