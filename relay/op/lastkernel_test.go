package op

import (
	"encoding/json"
	"strings"
	"testing"

	"colabrelay/relay/pairing"
	"colabrelay/relay/runtimes"
	"colabrelay/shared/contract"
)

// laptop is where relays keep what they last saw of each runtime.
func laptop(t *testing.T) runtimes.LastSeen {
	t.Helper()
	store := pairing.Open(t.TempDir())
	return runtimes.LastSeen{Load: store.LastSeen, Save: func(name string, seen pairing.LastSeen) {
		if err := store.SaveLastSeen(name, seen); err != nil {
			t.Error(err)
		}
	}}
}

// newRelay is a new relay process on the laptop.
func newRelay(t *testing.T, f *fakeExecutor, lastSeen runtimes.LastSeen) *host {
	t.Helper()
	runtime := f.runtime(t)
	return startHost(t, Config{Resolve: func(string) (runtimes.Runtime, error) { return runtime, nil }, LastSeen: lastSeen, SaveDir: t.TempDir()})
}

// become makes the fake another VM, or another kernel on the same one.
func (f *fakeExecutor) become(instance, kernel string) {
	f.replace(instance)
	f.answer("GET", contract.PathKernel, contract.Kernel{Status: contract.KernelIdle, KernelID: kernel, Python: "3.12"})
	f.answer("POST", contract.PathKernelRestart, contract.Kernel{Status: contract.KernelIdle, KernelID: kernel})
}

func check(t *testing.T, h *host) string {
	t.Helper()
	r := h.call("check_colab_connection", json.RawMessage(`{}`))
	if r.IsError {
		t.Fatalf("%s", r.Structured)
	}
	return r.outcome(t).Warning
}

func TestANewRelayProcessWarnsThatVariablesAreGone(t *testing.T) {
	f, lastSeen := newFake(t), laptop(t)
	if w := check(t, newRelay(t, f, lastSeen)); w != "" {
		t.Errorf("the first time: %q", w)
	}
	if w := check(t, newRelay(t, f, lastSeen)); w != "" {
		t.Errorf("nothing changed: %q", w)
	}
	f.become("instance-1", "kernel-2")
	h := newRelay(t, f, lastSeen)
	if w := check(t, h); !strings.Contains(w, "This is a new kernel: the variables") {
		t.Errorf("a new kernel: %q", w)
	}
	if w := check(t, h); w != "" {
		t.Errorf("warned twice: %q", w)
	}
	f.become("instance-2", "kernel-3")
	if w := check(t, newRelay(t, f, lastSeen)); !strings.Contains(w, "on a new VM") || !strings.Contains(w, "files") {
		t.Errorf("a new VM: %q", w)
	}
	if w := check(t, h); !strings.Contains(w, "on a new VM") {
		t.Errorf("a new VM, to a relay that has run all the time: %q", w)
	}
}

// A kernel that was asked for is no news, to the next relay neither.
func TestARestartThatWasAskedForIsNoNews(t *testing.T) {
	f, lastSeen := newFake(t), laptop(t)
	h := newRelay(t, f, lastSeen)
	check(t, h)
	f.become("instance-1", "kernel-2")
	if r := h.call("restart_kernel", json.RawMessage(`{}`)); r.IsError || r.outcome(t).Warning != "" {
		t.Errorf("%s", r.Structured)
	}
	if w := check(t, h) + check(t, newRelay(t, f, lastSeen)); w != "" {
		t.Errorf("warned %q", w)
	}
}

// A call that began while the new kernel started could not tell, so the call that reads the
// run does.
func TestReadingARunTellsOfItsNewKernel(t *testing.T) {
	for _, status := range []contract.Status{contract.StatusRunning, contract.StatusSucceeded} {
		f := newFake(t)
		run := f.run("x-1")
		run.set(func(e *contract.Execution) { e.Status, e.KernelID = contract.StatusSucceeded, "kernel-1" })
		f.become("instance-1", "kernel-1")
		h := newRelay(t, f, laptop(t))
		check(t, h)
		read := func(id string) string {
			r := h.call("get_execution", json.RawMessage(`{"execution_id":"`+id+`"}`))
			if r.IsError {
				t.Fatalf("%s", r.Structured)
			}
			return r.outcome(t).Warning
		}
		if w := read("x-1"); w != "" {
			t.Errorf("a run of the same kernel: %q", w)
		}
		f.answer("GET", contract.PathKernel, contract.Kernel{Status: contract.KernelIdle, KernelID: "kernel-2"})
		f.run("x-2").set(func(e *contract.Execution) { e.Status, e.KernelID = status, "kernel-2" })
		if w := read("x-2"); !strings.Contains(w, "This is a new kernel: the variables") {
			t.Errorf("the first %s run of the new kernel: %q", status, w)
		}
		if w := read("x-2") + read("x-1") + check(t, h); w != "" {
			t.Errorf("then: %q", w)
		}
	}
}
