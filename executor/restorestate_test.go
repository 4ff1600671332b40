package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// `git clean -fdx` in the workdir deletes the state dir of a running executor. The
// executor must keep working, and the next one must know instance and executions.
func TestARunningExecutorRestoresADeletedStateDir(t *testing.T) {
	tier.Long(t)
	p := start(t, withEnv(envSecret+"="+longSecret))
	before := p.ready()
	past := p.submit("past", "print('gone')", 20)
	p.until("the folder is deleted", func() bool { return os.RemoveAll(filepath.Join(p.dir, ".colab-relay")) == nil }) // it may be restored meanwhile
	if e := p.submit("after", "print('after')", 20); e.Status != contract.StatusSucceeded || printed(e) != "after\n" {
		t.Errorf("a run after the deletion: %s (%s), %+v", e.Status, e.Reason, e.Events)
	}
	names := []string{"lock", "instance.json", "kernel.json", "executor.log", filepath.Join("executions", past.ExecutionID, "state.ndjson")}
	p.until("the folder is restored", func() bool {
		for _, name := range names {
			if _, err := os.Stat(filepath.Join(p.dir, ".colab-relay", name)); err != nil {
				return false
			}
		}
		state, _ := os.ReadFile(filepath.Join(p.dir, ".colab-relay", names[len(names)-1]))
		return strings.Contains(string(state), string(contract.StatusSucceeded))
	})
	second := start(t, in(p.dir), withEnv(envSecret+"="+longSecret))
	if code := second.exit(); code == 0 || !strings.Contains(second.errs.String(), "another executor") {
		t.Errorf("a second executor on the same state dir ends with %d: %s", code, second.errs)
	}
	must(t, p.cmd.Process.Kill())
	p.exit()
	must(t, os.Remove(p.readyFile())) // left behind by the killed executor
	again := start(t, in(p.dir), withEnv(envSecret+"="+longSecret))
	if info := again.ready(); info.InstanceID != before.InstanceID {
		t.Errorf("instance is %s, was %s", info.InstanceID, before.InstanceID)
	}
	if e := again.submit("past", "print('gone')", 20); e.ExecutionID != past.ExecutionID || e.Status != contract.StatusSucceeded {
		t.Errorf("the request_id from before: %+v", e)
	}
}

// A state dir that is deleted at the same moment as its executor takes the instance_id with it.
func TestTheTemporaryFilesOfAnExecutorWhoseStateDirIsGoneAreRemoved(t *testing.T) {
	tier.Long(t)
	temp := t.TempDir()
	p := start(t, withEnv(envSecret+"="+longSecret, "TMPDIR="+temp))
	p.ready()
	p.submit("save", `
import os
folder = os.path.join(os.environ["COLAB_RELAY_TEMP"], "colab-relay-state-" + os.environ["COLAB_RELAY_OWNER"] + "-x")
os.mkdir(folder)
open(os.path.join(folder, "data.unfinished"), "w").close()`, 20)
	must(t, p.cmd.Process.Kill())
	p.exit()
	killed, err := filepath.Glob(filepath.Join(temp, "colab-relay-*"))
	if must(t, err); len(killed) != 2 {
		t.Fatalf("the killed executor leaves %q, which shows nothing", killed)
	}
	must(t, os.Remove(p.readyFile()))
	must(t, os.RemoveAll(filepath.Join(p.dir, ".colab-relay")))
	next := start(t, in(p.dir), withEnv(envSecret+"="+longSecret, "TMPDIR="+temp))
	next.ready()
	for _, folder := range killed {
		if _, err := os.Stat(folder); err == nil {
			t.Errorf("%s is still there", filepath.Base(folder))
		}
	}
}

// printed returns what an execution printed. A print may arrive in several events.
func printed(e contract.Execution) string {
	var b strings.Builder
	for _, ev := range e.Events {
		b.WriteString(ev.Text)
	}
	return b.String()
}
