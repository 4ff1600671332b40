package kernelstate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/kernelcall"
	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

func digestOf(data string) string {
	sum := sha256.Sum256([]byte(data))
	return hex.EncodeToString(sum[:])
}

// brief options leave no time to wait.
func brief(name string) Options {
	o := options(name)
	o.Until = time.Now()
	return o
}

var errDied = errors.New("the relay died")

// dying returns a context that ends, as a relay does, once done bytes have moved, and
// options for the call.
func dying(t *testing.T, done int64) (context.Context, Options) {
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	o := options("n")
	o.Report = func(p transfer.Progress) {
		if p.Stage == transfer.StageMoving && p.Done >= done {
			cancel(errDied)
		}
	}
	return ctx, o
}

func TestKernelThatDiesDuringASaveLeavesTheLastGoodVersion(t *testing.T) {
	t.Parallel()
	v, dir := borrowVM(t, stacks.Old(t)), t.TempDir()
	v.run("x = 'good'")
	v.save(dir, "n")
	v.run("import os\nclass Kills:\n  def __reduce__(self): os.kill(os.getpid(), 9)\nkills = Kills()\nx = 'new'")
	_, err := Save(t.Context(), v.client, dir, options("n"))
	var run *kernelcall.EndedError
	if !errors.As(err, &run) || run.Last.Status != contract.StatusKernelDied {
		t.Fatalf("%v", err)
	}
	r := v.restore(dir, "n")
	if got := v.run("print(x)"); got != "good\n" || len(r.Warnings) > 0 {
		t.Errorf("x is %s, warned %q", got, r.Warnings)
	}
	v.save(dir, "n") // the failed save must not prevent another one
}

func TestOldWorkOrWorkForAnotherVMIsNotResumed(t *testing.T) {
	t.Parallel()
	first, second, dir := borrowVM(t, stacks.Old(t)), borrowVM(t, stacks.Old(t)), t.TempDir()
	first.run("x = 'first'")
	second.run("x = 'second'")
	start := func(v *vm) {
		t.Helper()
		s, err := Save(t.Context(), v.client, dir, brief("n"))
		must(t, err)
		if s.Done() {
			t.Fatal("done")
		}
	}
	start(first)
	s := second.save(dir, "n") // another VM answers at the address now
	if len(s.Warnings) != 1 || s.Manifest.InstanceID != second.exec.Ready.InstanceID {
		t.Errorf("%q, %+v", s.Warnings, s.Manifest)
	}
	start(second)
	file := filepath.Join(dir, "state", "n", savingFile)
	j := &job{folder: filepath.Dir(file)}
	p, ok := j.readPending(savingFile)
	if !ok {
		t.Fatal("no work is pending")
	}
	p.Touched = p.Touched.Add(-resumable - time.Minute)
	must(t, keep.WriteJSON(file, p))
	second.run("x = 'later'")
	s = second.save(dir, "n")
	if len(s.Warnings) != 1 || s.Execution.RequestID == p.Work.RequestID {
		t.Errorf("%q, %+v", s.Warnings, s.Execution)
	}
	second.restore(dir, "n")
	if got := second.run("print(x)"); got != "later\n" {
		t.Errorf("x is %s", got)
	}
}

func TestDataWithAWrongDigestIsNotUnpickled(t *testing.T) {
	t.Parallel()
	v, dir := borrowVM(t, stacks.Old(t)), t.TempDir()
	marker := filepath.Join(v.dir, "payload ran")
	v.run("class Payload:\n  def __reduce__(self): return open, ('payload ran', 'w')\np = Payload()\npadding = bytes(2 << 20)")
	s := v.save(dir, "n")
	must(t, os.Remove(marker)) // the save loaded it once, as a trial
	data := filepath.Join(s.Path, dataFile)
	text, err := os.ReadFile(data)
	must(t, err)
	text[1<<20] ^= 1
	must(t, os.WriteFile(data, text, 0o600))

	if _, err := Restore(t.Context(), v.client, dir, options("n")); !errors.Is(err, ErrDamaged) {
		t.Errorf("on the laptop: %v", err)
	}
	// The same on the VM, as if the file changed after the upload.
	temp := filepath.Join(v.temp, "colab-relay-state-x")
	must(t, os.Mkdir(temp, 0o700))
	must(t, os.WriteFile(filepath.Join(temp, dataFile), text, 0o600))
	j := &job{c: v.client, o: options("n")}
	var p Progress
	code := operationOf("test", "restore", filepath.Join(temp, dataFile), len(text), s.Manifest.SHA256)
	report, err := j.run(t.Context(), &kernelcall.Ticket{RequestID: "r1"}, code, func() error { return nil }, &p)
	must(t, err)
	var loaded Loaded
	must(t, decode(t.Context(), report, &loaded))
	if !strings.Contains(loaded.Damaged, "SHA-256") {
		t.Errorf("%+v", loaded)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the payload ran")
	}
	if _, err := os.Stat(temp); err == nil {
		t.Error("the file was not deleted on the VM")
	}
	// With the right bytes the payload runs, so this test can fail.
	text[1<<20] ^= 1
	must(t, os.WriteFile(data, text, 0o600))
	v.restore(dir, "n")
	if _, err := os.Stat(marker); err != nil {
		t.Error("a state with the right digest was not loaded")
	}
}

// Unpickling runs code. Who restores on another VM learns that the code of the first one may have
// run there.
func TestARestoreOnAnotherVMSaysThatItRanCodeOfTheFirst(t *testing.T) {
	t.Parallel()
	dir, first, second := t.TempDir(), borrowVM(t, stacks.Old(t)), borrowVM(t, stacks.Old(t))
	first.run("kept = 1")
	first.save(dir, "moving")
	const says = "come from another VM"
	for name, c := range map[string]struct {
		v    *vm
		want int
	}{"the same VM": {first, 0}, "another VM": {second, 1}} {
		got := c.v.restore(dir, "moving")
		if n := strings.Count(strings.Join(got.Warnings, "\n"), says); n != c.want {
			t.Errorf("%s: it says so %d times, want %d: %q", name, n, c.want, got.Warnings)
		}
	}
}

// A save that is resumed has the variables of its start, and says so.
func TestASaveIsResumedAndSaysOfWhenItsVariablesAre(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	v, dir := borrowVM(t, stacks.Old(t)), t.TempDir()
	v.run("import os\nx, data = 'old', os.urandom(48 << 20)")
	ctx, o := dying(t, 1<<20)
	if _, err := Save(ctx, v.client, dir, o); !errors.Is(err, errDied) {
		t.Fatalf("%v", err)
	}
	v.run("x, data = 'new', None")
	for _, want := range []struct {
		x      string
		warned int
	}{{"old\n", 1}, {"new\n", 0}} {
		s := v.save(dir, "n")
		if len(s.Warnings) != want.warned {
			t.Errorf("warned %q", s.Warnings)
		}
		v.restore(dir, "n")
		if got := v.run("print(x)"); got != want.x {
			t.Errorf("saved %q, want %q", got, want.x)
		}
		v.run("x = 'new'")
	}
	wantNothingLeft(t, v, dir, "n")
}

// standIn returns an environment in which testdata/torch can be imported and no compiled
// file is written beside it.
func standIn(t *testing.T) []string {
	t.Helper()
	path, err := filepath.Abs("testdata")
	must(t, err)
	return []string{"PYTHONPATH=" + path, "PYTHONDONTWRITEBYTECODE=1"}
}

func TestGPUTensorsAreRestoredToAGPUIfThereIsOne(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	const facts = `print(w.device, w.device.index, part.device, part.values().tolist(), part.memory is w.memory, cpu.device, raw.device.type, len(raw.memory))`
	dir := t.TempDir()
	first := newVM(t, stacks.Old(t), append(standIn(t), "TORCH_GPU=2")...)
	first.run("import torch\nw = torch.arange(10, 'cuda:1')\npart = w[4:6]\ncpu = torch.arange(3)\nraw = w.untyped_storage()")
	saved := first.save(dir, "gpu")
	if len(saved.Manifest.Skipped) > 0 {
		t.Errorf("skipped %+v", saved.Manifest.Skipped)
	}
	for name, test := range map[string]struct{ gpus, want string }{
		"as many": {"2", "cuda:1 1 cuda:1 [4.0, 5.0] True cpu cuda 40\n"},
		"fewer":   {"1", "cuda:0 0 cuda:0 [4.0, 5.0] True cpu cuda 40\n"},
		"none":    {"", "cpu None cpu [4.0, 5.0] True cpu cpu 40\n"},
	} {
		t.Run(name, func(t *testing.T) {
			first.forget()
			first.run("import os; os.environ.pop('TORCH_GPU', 0)\nif '" + test.gpus + "': os.environ['TORCH_GPU'] = '" + test.gpus + "'")
			r := first.restore(dir, "gpu")
			if got := first.run(facts); got != test.want || len(r.Loaded.Failed) > 0 {
				t.Errorf("got %q, want %q; failed %+v", got, test.want, r.Loaded.Failed)
			}
			warned := len(r.Loaded.Warnings) == 1 && strings.Contains(r.Loaded.Warnings[0], "no GPU")
			if warned != (test.gpus == "") {
				t.Errorf("warnings %q", r.Loaded.Warnings)
			}
		})
	}
}
