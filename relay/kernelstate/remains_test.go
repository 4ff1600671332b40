package kernelstate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/kernelcall"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// startEndlessSave starts a save that never ends.
func (v *vm) startEndlessSave() {
	v.t.Helper()
	v.run("class Endless:\n  def __reduce__(self):\n    while True: pass\nendless, data = Endless(), bytes(1_000_000)")
	ctx, cancel := context.WithTimeout(v.t.Context(), 30*time.Second)
	defer cancel()
	dir := v.t.TempDir()
	must(v.t, harness.Poll(ctx, func() (bool, error) {
		saved, err := Save(ctx, v.client, dir, brief("n"))
		return saved.At.Variable == "endless", err
	}))
}

// inTemp lists the folders of saves and the folders of sockets in the temp folder.
func (v *vm) inTemp() (saves, sockets []string) {
	v.t.Helper()
	entries, err := os.ReadDir(v.temp)
	must(v.t, err)
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Name(), contract.StateFolderPrefix):
			saves = append(saves, e.Name())
		case strings.HasPrefix(e.Name(), "colab-relay-"):
			sockets = append(sockets, e.Name())
		}
	}
	return saves, sockets
}

// Otherwise gigabytes would stay in the temp folder, and a folder for each start. Folders of
// another executor on the machine stay, and so does a state that was not downloaded yet.
func TestRemainsOfAKilledSaveAreDeletedAtTheNextStart(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	v := newVM(t, stacks.Old(t))
	other := newVM(t, stacks.Old(t), "TMPDIR="+v.temp)
	other.startEndlessSave()
	theirSaves, _ := v.inTemp()
	v.startEndlessSave()
	saves, before := v.inTemp()
	if len(theirSaves) != 1 || len(saves) != 2 || len(before) != 2 {
		t.Fatalf("saves %q, the other's %q, sockets %q", saves, theirSaves, before)
	}
	ours := saves[0]
	if ours == theirSaves[0] {
		ours = saves[1]
	}
	if _, err := os.Stat(filepath.Join(v.temp, ours, contract.StateUnfinished)); err != nil {
		t.Fatalf("the running save has no such file: %v", err)
	}
	waiting := ours[:len(ours)-1] + "-waiting"
	unrelated := contract.StateFolderPrefix + "0123456789ab-x"
	for _, name := range []string{filepath.Join(waiting, dataFile), filepath.Join(unrelated, contract.StateUnfinished)} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(v.temp, name)), 0o700))
		must(t, os.WriteFile(filepath.Join(v.temp, name), []byte("x"), 0o600))
	}

	v.exec.Kill()
	v.start()
	v.run("pass")
	want := []string{waiting, unrelated, theirSaves[0]}
	slices.Sort(want)
	after, sockets := v.inTemp()
	if !slices.Equal(after, want) {
		t.Errorf("states in the temp folder: %q, want %q", after, want)
	}
	kept := 0
	for _, name := range sockets {
		if slices.Contains(before, name) {
			kept++
		}
	}
	if len(sockets) != 2 || kept != 1 {
		t.Errorf("folders of sockets: %q, before the kill %q", sockets, before)
	}
	if _, err := os.Stat(filepath.Join(v.temp, theirSaves[0], contract.StateUnfinished)); err != nil {
		t.Errorf("the other executor's save: %v", err)
	}
	list, err := other.client.List(t.Context(), 1)
	must(t, err)
	if _, err := other.client.Interrupt(t.Context(), list.Executions[0].ExecutionID); err != nil {
		t.Errorf("the other executor: %v", err)
	}
}

// A save needs memory, so the system is likely to kill the kernel during one.
func TestRemainsOfASaveAreDeletedWhenItsKernelDies(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	v, dir := newVM(t, stacks.Old(t)), t.TempDir()
	v.run("import os, signal\nclass Last:\n  def __reduce__(self):\n    os.kill(os.getpid(), signal.SIGKILL)\nlast, data = Last(), bytes(1_000_000)")
	if s, err := Save(t.Context(), v.client, dir, options("n")); err == nil {
		t.Fatalf("%+v", s)
	}
	v.run("pass")
	if saves, sockets := v.inTemp(); len(saves) != 0 || len(sockets) != 1 {
		t.Errorf("saves %q, sockets %q", saves, sockets)
	}
}

// So is it during a restore, and each further attempt would leave one more copy.
func TestRemainsOfARestoreAreDeletedWhenItsKernelDies(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	v, dir := newVM(t, stacks.Old(t)), t.TempDir()
	v.run("import os\nclass Last:\n  def __setstate__(self, state):\n    if os.path.exists('armed'): os.kill(os.getpid(), 9) # not in the trial at the save\nlast = Last()\nlast.x = 1")
	v.save(dir, "n")
	v.run("open('armed', 'w').close()")
	_, err := Restore(t.Context(), v.client, dir, options("n"))
	if run, ok := errors.AsType[*kernelcall.EndedError](err); !ok || run.Last.Status != contract.StatusKernelDied {
		t.Fatalf("%v", err)
	}
	v.run("pass")
	if states, _ := v.inTemp(); len(states) != 0 {
		t.Errorf("states in the temp folder: %q", states)
	}
}
