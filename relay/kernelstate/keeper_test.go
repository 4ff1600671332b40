package kernelstate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"colabrelay/shared/stacks"
)

// setRun gives the kernel the record of a chunked run. hollow says that it waits for the
// run's variables.
func (v *vm) setRun(key string, done int, hollow bool) {
	v.t.Helper()
	entry := fmt.Sprintf("{'setup': 'hash', 'done': %d}", done)
	if hollow {
		entry = fmt.Sprintf("{'setup': 'hash', 'done': %d, 'hollow': True}", done)
	}
	v.run(fmt.Sprintf("import sys as _s, types as _t\n_s.modules['colab_relay_runs'] = _t.ModuleType('colab_relay_runs')\n_s.modules['colab_relay_runs'].runs = {%q: %s}", key, entry))
}

func (v *vm) entry(key string) string {
	v.t.Helper()
	return strings.TrimSpace(v.run(fmt.Sprintf("print(_s.modules['colab_relay_runs'].runs[%q])", key)))
}

func keepOf(known string, names ...string) KeepRequest {
	return KeepRequest{
		Run: "key", Names: names, LastSHA256: known, MaxBytes: 64 << 20, MaxBusy: time.Minute, Until: time.Now().Add(time.Minute),
		AllowDownload: func(int64) bool { return true },
	}
}

// keep is a call of Keep that must succeed.
func (v *vm) keep(k *Keeper, o KeepRequest) KeepResult {
	v.t.Helper()
	kept, err := k.Keep(v.t.Context(), o)
	must(v.t, err)
	return kept
}

// wantKept compares a result of Keep, except for the file that it describes.
func (v *vm) wantKept(got, want KeepResult) {
	v.t.Helper()
	file := cmpopts.IgnoreFields(KeepResult{}, "SHA256", "Bytes")
	if diff := cmp.Diff(want, got, file, cmpopts.EquateEmpty()); diff != "" {
		v.t.Error(diff)
	}
}

// checkpointed returns a folder with a checkpoint file for the run "n".
func checkpointed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "n.json"), nil, 0o600))
	return dir
}

func TestKeptVariablesAreRestoredAtTheirIteration(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		t.Parallel()
		v, dir := borrowVM(t, s), checkpointed(t)
		k := NewKeeper(v.client, dir, "n", "test")
		v.run("xs, other, gone_later = [1, 2], 'other', 1\nview = xs")
		v.wantKept(v.keep(k, keepOf("", "xs")), KeepResult{Missing: true}) // there is no run
		v.setRun("key", 12, false)
		first := v.keep(k, keepOf("", "xs", "not_yet"))
		if first.Version == "" {
			t.Fatalf("%+v", first)
		}
		v.wantKept(first, KeepResult{Done: 12, Version: first.Version, Absent: []string{"not_yet"}})
		v.setRun("key", 13, false)
		v.wantKept(v.keep(k, keepOf(first.SHA256, "xs", "not_yet")), KeepResult{Done: 13, Absent: []string{"not_yet"}, Unchanged: true})
		v.run("xs.append(3)")
		second := v.keep(k, keepOf(first.SHA256, "xs"))
		if second.Version == "" || second.SHA256 == first.SHA256 {
			t.Fatalf("changed: %+v", second)
		}
		must(t, k.DropOthers(second.Version))
		all, err := versions(filepath.Join(dir, "kept", "n"))
		must(t, err)
		if diff := cmp.Diff([]version{{second.Version, 2}}, all, cmp.AllowUnexported(version{})); diff != "" {
			t.Error(diff)
		}
		if names := Names(dir); len(names) != 0 {
			t.Errorf("listed as saved states: %v", names)
		}
		v.forget()
		version := KeptVersion{Run: "key", Version: second.Version, Done: 13, Absent: []string{"not_yet"}, Until: time.Now().Add(time.Minute)}
		v.setRun("key", 0, false)
		if r, err := k.Restore(t.Context(), version); err != nil || !r.Loaded.Missing {
			t.Errorf("into a kernel that does not wait: %+v %v", r, err)
		}
		v.run("xs, view, not_yet = [], 0, 1")
		v.setRun("key", 20, true)
		r, err := k.Restore(t.Context(), version)
		if must(t, err); !r.Done() || r.Loaded.FailedCount != 0 {
			t.Fatalf("%+v", r)
		}
		if got := v.run("print(xs, view is xs, 'not_yet' in globals(), 'other' in globals())"); got != "[1, 2, 3] True False False\n" {
			t.Errorf("%s", got)
		}
		if got := v.entry("key"); got != "{'setup': 'hash', 'done': 13}" {
			t.Errorf("%s", got)
		}
		must(t, k.DropAll())
		if _, err := os.Stat(filepath.Join(dir, "kept", "n")); !os.IsNotExist(err) {
			t.Errorf("after DropAll: %v", err)
		}
		wantNothingOnVM(t, v)
	})
}

func wantNothingOnVM(t *testing.T, v *vm) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(v.temp, "colab-relay-state-*")); len(left) > 0 {
		t.Errorf("left on the VM: %v", left)
	}
}

func TestVariablesThatCannotBeKeptAreReported(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		t.Parallel()
		v, dir := borrowVM(t, s), checkpointed(t)
		k := NewKeeper(v.client, dir, "n", "test")
		v.run("import numpy as np\nfits, small, gen, file = np.zeros(1 << 17), 1, iter(lambda: 1, 0), open('f', 'w')\nover = np.zeros((1 << 17) + 1)")
		v.run("class Slow:\n    def __reduce__(self):\n        import threading; threading.Event().wait(.1)\n        return Slow, ()\nslow = [Slow() for _ in range(10)] + [bytes(1 << 17)]")
		v.setRun("key", 1, false)
		bounded := func(names ...string) KeepRequest {
			o := keepOf("", names...)
			o.MaxBytes = 1<<20 + 1<<12 // a little more than the array
			return o
		}
		if kept := v.keep(k, bounded("fits")); kept.Version == "" {
			t.Errorf("within the bound: %+v", kept)
		}
		v.wantKept(v.keep(k, bounded("fits", "over")), KeepResult{Done: 1, Unsaveable: []Omission{{"over", "together they are over 1 MB"}}})
		v.wantKept(v.keep(k, keepOf("", "small", "file")), KeepResult{Done: 1, Unsaveable: []Omission{{"file", "it contains an open file; the file stays on the VM"}}})
		o := keepOf("", "slow")
		o.MaxBusy = time.Second / 2
		v.wantKept(v.keep(k, o), KeepResult{Done: 1, TooSlow: true})
		o = keepOf("", "fits")
		o.AllowDownload = func(bytes int64) bool { return bytes < 1<<20 }
		kept := v.keep(k, o)
		if v.wantKept(kept, KeepResult{Done: 1, DownloadRefused: true}); kept.Bytes < 1<<20 {
			t.Errorf("AllowDownload refused a file of %d bytes", kept.Bytes)
		}
		wantNothingOnVM(t, v)
	})
}

// Either all variables are restored, or the kernel is unchanged and still waits.
func TestFailedRestoreOfKeptVariablesChangesNothing(t *testing.T) {
	t.Parallel()
	v, dir := borrowVM(t, stacks.Old(t)), checkpointed(t)
	k := NewKeeper(v.client, dir, "n", "test")
	must(t, os.WriteFile(filepath.Join(v.dir, "mod_here.py"), []byte("class Thing: pass\n"), 0o600))
	v.run("import mod_here\na, z = [1], mod_here.Thing()")
	v.setRun("key", 5, false)
	kept := v.keep(k, keepOf("", "a", "z"))
	if kept.Version == "" {
		t.Fatalf("%+v", kept)
	}
	v.forget()
	must(t, os.Remove(filepath.Join(v.dir, "mod_here.py")))
	v.run("import sys\nsys.modules.pop('mod_here')\na = 'of the setup'")
	v.setRun("key", 9, true)
	r, err := k.Restore(t.Context(), KeptVersion{Run: "key", Version: kept.Version, Done: 5, Until: time.Now().Add(time.Minute)})
	if err != nil || r.Loaded.FailedCount != 1 || r.Loaded.Failed[0].Name != "z" {
		t.Errorf("%+v %v", r.Loaded, err)
	}
	if got := v.run("print(a)"); got != "of the setup\n" || !strings.Contains(v.entry("key"), "'hollow': True") {
		t.Errorf("%s %s", got, v.entry("key"))
	}
	// The next Keep of any run deletes what is kept of a run whose checkpoint was deleted.
	must(t, os.Rename(filepath.Join(dir, "n.json"), filepath.Join(dir, "m.json")))
	v.setRun("key", 5, false)
	v.keep(NewKeeper(v.client, dir, "m", "test"), keepOf("", "a"))
	if left, _ := os.ReadDir(filepath.Join(dir, "kept")); len(left) != 1 || left[0].Name() != "m" {
		t.Errorf("%v", left)
	}
}
