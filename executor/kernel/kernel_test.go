package kernel

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func find(t *testing.T, s stacks.Stack) Python {
	t.Helper()
	python, err := Find(within.Context(t), nil, s.Python, os.Environ())
	must(t, err)
	return python
}

// running starts a supervisor that ends with the test and waits for its first kernel.
func running(t *testing.T, cfg Config) (*Supervisor, *Kernel) {
	t.Helper()
	if cfg.StateDir == "" {
		cfg.StateDir = t.TempDir()
	}
	cfg.WorkDir = t.TempDir()
	cfg.Log = slog.New(slog.DiscardHandler)
	if cfg.Environ == nil {
		cfg.Environ = os.Environ()
	}
	s := New(cfg)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	kernel, err := s.Await(within.Context(t))
	must(t, err)
	return s, kernel
}

// evaluate returns the repr of an expression in the kernel.
func evaluate(t *testing.T, kernel *Kernel, code, expression string) string {
	t.Helper()
	m, err := kernel.Client.Request(within.Context(t), jupyter.Shell, jupyter.MsgExecuteRequest, jupyter.ExecuteRequest{
		Code: code, Silent: true, UserExpressions: map[string]string{"v": expression},
	})
	must(t, err)
	var reply jupyter.ExecuteReply
	var value struct {
		Data map[string]string `json:"data"`
	}
	must(t, json.Unmarshal(m.Content, &reply))
	if err := json.Unmarshal(reply.UserExpressions["v"], &value); err != nil {
		t.Fatalf("%v in %s", err, m.Content)
	}
	return value.Data["text/plain"]
}

func isGone(pid int) bool {
	_, state, err := processStat(pid)
	return err != nil || state == 'Z'
}

func waitGone(t *testing.T, pid int) {
	t.Helper()
	within.Until(t, fmt.Sprintf("process %d is gone", pid), func() bool { return isGone(pid) })
}

func TestKernelSeesNoSecretsAndItsOwnSession(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		_, kernel := running(t, Config{Python: find(t, s), Environ: append(os.Environ(),
			"NGROK_AUTHTOKEN=one", "EXECUTOR_SECRET=two", "KAGGLE_USER_SECRETS_TOKEN=three", "KEPT=four")})
		got := evaluate(t, kernel, "import os", "[v for v in os.environ.values() if v in ('one', 'two', 'three', 'four')]")
		if got != "['four']" {
			t.Errorf("the kernel sees %s", got)
		}
		if got := evaluate(t, kernel, "import os", "os.getsid(0) == os.getpid()"); got != "True" {
			t.Error("the kernel is in the executor's session")
		}
	})
}

func TestColabsIPythonConfigurationDoesNotReachTheKernel(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		dir := t.TempDir()
		profile := filepath.Join(dir, "profile_default")
		must(t, os.MkdirAll(profile, 0o700))
		config := "c.IPKernelApp.kernel_class = 'google.colab._kernel.Kernel'\nc.InteractiveShellApp.extensions = ['google.colab']\n"
		must(t, os.WriteFile(filepath.Join(profile, "ipython_config.py"), []byte(config), 0o600))
		_, kernel := running(t, Config{Python: find(t, s), Environ: append(os.Environ(), "IPYTHONDIR="+dir)})
		if got := evaluate(t, kernel, "", "type(get_ipython().kernel).__module__"); got != "'ipykernel.ipkernel'" {
			t.Errorf("kernel class is of %s", got)
		}
	})
}

func TestDeadKernelIsStartedAgainUnderANewID(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		k, kernel := running(t, Config{Python: find(t, s)})
		// A forked child keeps the sockets open: only the end of the process shows the death.
		child := evaluate(t, kernel, "import os, time\npid = os.fork()\nif pid == 0: time.sleep(300)", "pid")
		_ = syscall.Kill(kernel.PID(), syscall.SIGKILL)
		<-kernel.Done()
		if !strings.Contains(kernel.Reason(), "SIGKILL") || kernel.EndedOnRequest() {
			t.Errorf("reason = %q", kernel.Reason())
		}
		var pid int
		if _, err := fmt.Sscan(child, &pid); err != nil {
			t.Fatal(err)
		}
		waitGone(t, pid)
		next, err := awaitOther(t, k, kernel)
		must(t, err)
		if next.ID == kernel.ID || k.Status().KernelsStarted != 2 {
			t.Errorf("status after the death: %+v", k.Status())
		}
	})
}

// A process that replaces itself keeps its id and sockets, but no variable.
func TestAKernelThatReplacesItselfHasEnded(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		k, kernel := running(t, Config{Python: find(t, s)})
		evaluate(t, kernel, "import os, threading\nargv = open('/proc/self/cmdline').read().split('\\0')[:-1]\nthreading.Timer(.1, os.execv, (argv[0], argv)).start()", "0")
		<-kernel.Done()
		if !strings.Contains(kernel.Reason(), "exec") || kernel.EndedOnRequest() {
			t.Errorf("reason = %q", kernel.Reason())
		}
		if next, err := awaitOther(t, k, kernel); err != nil || next.ID == kernel.ID {
			t.Errorf("%v %v", next, err)
		}
	})
}

// awaitOther waits for another kernel than old, or for the error of having none.
func awaitOther(t *testing.T, k *Supervisor, old *Kernel) (*Kernel, error) {
	t.Helper()
	for {
		changed := k.Changed()
		kernel, err := k.Await(within.Context(t))
		if err != nil || kernel != old {
			return kernel, err
		}
		<-changed
	}
}

func TestLeftoverGroupIsEndedByTheNextExecutor(t *testing.T) {
	t.Parallel()
	python := find(t, stacks.Old(t))
	state, scripts := t.TempDir(), t.TempDir()
	if err := os.WriteFile(startScript(scripts), []byte("import time; time.sleep(600)"), 0o600); err != nil {
		t.Fatal(err)
	}
	leftover, err := startProcess(Config{Python: python, WorkDir: state, StateDir: state, Environ: os.Environ(), Log: slog.New(slog.DiscardHandler)}, scripts)
	must(t, err)
	record, err := os.ReadFile(recordPath(state))
	must(t, err)
	// A killed executor leaves the record and the process, but no supervisor.
	must(t, endLeftover(state))
	<-leftover.done
	waitGone(t, leftover.pid)

	other := strings.Replace(string(record), `"start_time": `, `"start_time": 1`, 1)
	bystander, err := startProcess(Config{Python: python, WorkDir: state, StateDir: t.TempDir(), Environ: os.Environ(), Log: slog.New(slog.DiscardHandler)}, scripts)
	must(t, err)
	other = strings.Replace(other, fmt.Sprint(leftover.pid), fmt.Sprint(bystander.pid), 1)
	must(t, os.WriteFile(recordPath(state), []byte(other), 0o600))
	must(t, endLeftover(state))
	if isGone(bystander.pid) {
		t.Error("a process with the leftover's pid but another start time was killed")
	}
	bystander.kill()
	<-bystander.done
}

func TestRunReturnsWhyTheFirstKernelCannotStart(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "python3")
	must(t, os.WriteFile(broken, []byte("#!/bin/sh\necho 'ImportError: libzmq is broken' >&2\nexit 3\n"), 0o700))
	k := New(Config{Python: Python{Path: broken}, WorkDir: t.TempDir(), StateDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	err := k.Run(within.Context(t))
	if err == nil || !strings.Contains(err.Error(), "libzmq is broken") {
		t.Errorf("Run = %v", err)
	}
}

func TestOnlyRemainsOfThisExecutorAreRemoved(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	mine, theirs := ownerOf("instance-1"), ownerOf("instance-2")
	precious := t.TempDir()
	var want []string
	for name, kept := range map[string]bool{
		"colab-relay-" + mine + "-1/kernel.json":                               false,
		"colab-relay-" + mine + "-2/deep/er":                                   false,
		"colab-relay-" + theirs + "-1/kernel.json":                             true,
		"colab-relay-" + mine + "/x":                                           true,
		"colab-relay-1234/kernel.json":                                         true,
		contract.StateFolderPrefix + mine + "-1/" + contract.StateUnfinished:   false,
		contract.StateFolderPrefix + mine + "-2/data.state":                    true,
		contract.StateFolderPrefix + theirs + "-1/" + contract.StateUnfinished: true,
		contract.StateFolderPrefix + "1/" + contract.StateUnfinished:           true,
		"mine-colab-relay-" + mine + "-1/" + contract.StateUnfinished:          true,
		"colab-relay-" + mine + "-file":                                        true, // a file
	} {
		path := filepath.Join(temp, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, nil, 0o600))
		if kept {
			want = append(want, path)
		}
	}
	must(t, os.WriteFile(filepath.Join(precious, contract.StateUnfinished), nil, 0o600))
	for _, link := range []string{"colab-relay-" + mine + "-link", contract.StateFolderPrefix + mine + "-link"} {
		must(t, os.Symlink(precious, filepath.Join(temp, link)))
		want = append(want, filepath.Join(temp, link))
	}
	want = append(want, filepath.Join(precious, contract.StateUnfinished))

	must(t, removeRemains(nil, mine))
	must(t, removeRemains(nil, ""))
	var got []string
	for _, dir := range []string{temp, precious} {
		must(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				got = append(got, path)
			}
			return err
		}))
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("remaining files (-want +got):\n%s", diff)
	}
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
