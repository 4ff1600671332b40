package e2e

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// jobOf is a job whose steps append their numbers to a file of the job's name, and then run code.
func jobOf(name string, codes ...string) contract.JobSubmit {
	s := contract.JobSubmit{JobID: name}
	for n, code := range codes {
		s.Steps = append(s.Steps, contract.JobStep{
			StepID: fmt.Sprint(n + 1), Code: fmt.Sprintf("with open(%q, 'a') as f: print(%d, file=f)\n%s", name, n+1, code),
		})
	}
	return s
}

// ran are the numbers of the steps that ran, in order.
func ran(t *testing.T, dir, name string) string {
	t.Helper()
	lines, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(lines)), " ")
}

// wantEnd waits for the job's end and checks how it and its steps ended.
func wantEnd(t *testing.T, c *client.Client, s contract.JobSubmit, state contract.JobState, statuses string) {
	t.Helper()
	ctx := within(t)
	x := contract.Job{State: contract.JobQueued}
	for !x.State.Ended() {
		_, err := c.Job(ctx, s.JobID, len(s.Steps), 30*time.Second)
		must(t, err)
		x, err = c.Job(ctx, s.JobID, 0, 0)
		must(t, err)
	}
	var all []string
	for _, e := range x.Steps {
		all = append(all, string(e.Status))
	}
	if got := strings.Join(all, " "); x.State != state || got != statuses {
		t.Errorf("job %s is %s (%s): %s; want %s: %s", s.JobID, x.State, x.Reason, got, state, statuses)
	}
}

// awaitStep waits until the step of this index has printed something.
func awaitStep(t *testing.T, c *client.Client, id string, index int) {
	t.Helper()
	x, err := c.Job(within(t), id, index, 30*time.Second)
	must(t, err)
	if len(x.Steps) == 0 {
		t.Fatalf("the step has not begun: %+v", x)
	}
	_, err = c.Execution(within(t), x.Steps[0].ExecutionID, 0, 30*time.Second, contract.MaxReadBytes)
	must(t, err)
}

const sleeping = "import time; print('on', flush=True); time.sleep(600)"

func TestAJobStopsWhereItFails(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	dir := t.TempDir()
	e := startExecutor(t, harness.ExecutorConfig{Dir: dir})
	c := relayClient(t, e)
	submit := func(t *testing.T, c *client.Client, s contract.JobSubmit) {
		t.Helper()
		_, err := c.SubmitJob(within(t), s)
		must(t, err)
	}
	t.Run("a failing step", func(t *testing.T) {
		s := jobOf("failing", "", "", "1/0", "", "")
		for range 2 { // a repeated request
			submit(t, c, s)
			wantEnd(t, c, s, contract.JobFailed, "succeeded succeeded failed not_run not_run")
		}
		if got := ran(t, dir, "failing"); got != "1 2 3" {
			t.Errorf("ran: %s", got)
		}
		s.Steps[3].MayFail = true
		var refused *contract.Error
		if _, err := c.SubmitJob(within(t), s); !errors.As(err, &refused) || refused.Code != contract.CodeConflict {
			t.Errorf("with other content: %v", err)
		}
	})
	t.Run("other runs go between", func(t *testing.T) { betweenSteps(t, e, c) })
	t.Run("a killed kernel", func(t *testing.T) {
		s := jobOf("killed", "", sleeping, "", "")
		submit(t, c, s)
		k, err := c.Kernel(within(t))
		must(t, err)
		awaitStep(t, c, "killed", 1)
		must(t, syscall.Kill(k.PID, syscall.SIGKILL))
		wantEnd(t, c, s, contract.JobKernelLost, "succeeded kernel_died not_run not_run")
		must(t, awaitKernel(t, c, k.KernelID))
		x, err := c.Submit(within(t), contract.Submit{Code: "1", WaitSeconds: 30})
		if err != nil || x.Status != contract.StatusSucceeded {
			t.Errorf("in the next kernel: %s, %v", x.Status, err)
		}
		if got := ran(t, dir, "killed"); got != "1 2" {
			t.Errorf("ran: %s", got)
		}
	})
	t.Run("a killed executor", func(t *testing.T) {
		s := jobOf("lost", "", sleeping, "", "")
		submit(t, c, s)
		awaitStep(t, c, "lost", 1)
		e.Kill()
		again := relayClient(t, startExecutor(t, harness.ExecutorConfig{Dir: dir}))
		for range 2 { // submitted again
			submit(t, again, s)
			wantEnd(t, again, s, contract.JobKernelLost, "succeeded lost not_run not_run")
		}
		if got := ran(t, dir, "lost"); got != "1 2" {
			t.Errorf("ran: %s", got)
		}
	})
}

// A step is listed with the name of its source, so that a person and an agent find a cell again.
func TestAStepIsListedWithTheNameOfItsSource(t *testing.T) {
	e := borrowExecutor(t, stacks.Old(t))
	c := relayClient(t, e)
	s := jobOf("named-"+rand.Text(), "1")
	s.Steps[0].SourceName = "a.ipynb cell 3"
	_, err := c.SubmitJob(within(t), s)
	must(t, err)
	wantEnd(t, c, s, contract.JobFinished, "succeeded")
	const named = "[a.ipynb cell 3] with open("
	if a := call(t, startHost(t, e.Ready.LocalURL, harness.HostConfig{}), "list_executions", nil); !strings.Contains(a.Text, named) {
		t.Errorf("list_executions says %q", a.Text)
	}
	cmd := exec.CommandContext(within(t), binaries.Relay, "ps")
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir(), "XDG_DATA_HOME="+t.TempDir(), "COLAB_URL="+e.Ready.LocalURL, "COLAB_SECRET="+secret)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), named) {
		t.Errorf("ps says %q, %v", out, err)
	}
}

// betweenSteps: while a job's steps wait, a run of the same relay or of another one waits for no
// more than the running step and one other turn.
func betweenSteps(t *testing.T, e *harness.Executor, c *client.Client) {
	s := jobOf("between", strings.Split(strings.Repeat("import time; time.sleep(.1)|", 12), "|")[:12]...)
	_, err := c.SubmitJob(within(t), s)
	must(t, err)
	runs := map[string]contract.Execution{}
	for name, from := range map[string]*client.Client{"the same relay": c, "another relay": relayClient(t, e)} {
		runs[name], err = from.Submit(within(t), contract.Submit{Code: "1", WaitSeconds: 30})
		must(t, err)
	}
	wantEnd(t, c, s, contract.JobFinished, strings.TrimSpace(strings.Repeat("succeeded ", 12)))
	if got := ran(t, e.Config.Dir, "between"); got != "1 2 3 4 5 6 7 8 9 10 11 12" {
		t.Errorf("ran: %s", got)
	}
	list, err := c.List(within(t), contract.MaxListExecutions)
	must(t, err)
	for name, x := range runs {
		if x.Status != contract.StatusSucceeded {
			t.Fatalf("%s: %+v", name, x)
		}
		before := 0
		for _, step := range list.Executions {
			if step.Job != nil && step.Job.JobID == "between" && step.StartedAt.After(x.CreatedAt) && step.StartedAt.Before(*x.StartedAt) {
				before++
			}
		}
		if before > 1 {
			t.Errorf("while a run of %s waited, %d steps began", name, before)
		}
	}
}

// awaitKernel waits for a kernel after the one with this id.
func awaitKernel(t *testing.T, c *client.Client, id string) error {
	return harness.Poll(within(t), func() (bool, error) {
		k, err := c.Kernel(t.Context())
		return k.KernelID != "" && k.KernelID != id && k.Status == contract.KernelIdle, err
	})
}
