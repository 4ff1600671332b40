package kernelstate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

func TestSaveStartsAgainAfterOtherCodeRan(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	v, dir := borrowVM(t, stacks.Old(t)), t.TempDir()
	start := func() {
		t.Helper()
		must(t, os.RemoveAll(filepath.Join(dir, "state")))
		v.run("import os\nx, data = 'old', os.urandom(48 << 20)")
		ctx, o := dying(t, 1<<20)
		if _, err := Save(ctx, v.client, dir, o); !errors.Is(err, errDied) {
			t.Fatalf("%v", err)
		}
	}
	start()
	v.run("x, data = 'new', None")
	s := v.save(dir, "n")
	if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "other code ran") || s.Manifest.Bytes > 1<<20 {
		t.Errorf("%d bytes, warned %q", s.Manifest.Bytes, s.Warnings)
	}
	v.restore(dir, "n")
	if got := v.run("print(x)"); got != "new\n" {
		t.Errorf("saved %s", got)
	}
	wantNothingLeft(t, v, dir, "n")

	// While the other code still runs, a new save could only wait. The old one is finished,
	// with a warning.
	start()
	_, err := v.client.Submit(t.Context(), contract.Submit{Code: "import threading\nopen('running', 'w').close()\nwhile not os.path.exists('gate'): threading.Event().wait(0.01)"})
	must(t, err)
	awaitFile(t, filepath.Join(v.dir, "running"))
	s = v.save(dir, "n")
	if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "call again to save the current ones") || s.Manifest.Bytes < 48<<20 {
		t.Errorf("%d bytes, warned %q", s.Manifest.Bytes, s.Warnings)
	}
	must(t, os.WriteFile(filepath.Join(v.dir, "gate"), nil, 0o600))
	v.run("pass") // the other code has ended
}

// The relay was killed while it waited for the answer to its submit.
func TestAStaleSaveWhoseExecutionIsUnknownIsDeletedOnTheVM(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	v, dir := borrowVM(t, stacks.Old(t)), t.TempDir()
	v.run("import os\ndata = os.urandom(4 << 20)")
	ctx, o := dying(t, 1)
	if _, err := Save(ctx, v.client, dir, o); !errors.Is(err, errDied) {
		t.Fatalf("%v", err)
	}
	j := &job{folder: filepath.Join(dir, "state", "n")}
	p, ok := j.readPending(savingFile)
	if !ok {
		t.Fatal("no work is pending")
	}
	p.Phase, p.Manifest, p.Remote, p.Work.ExecutionID = PhaseCollecting, nil, "", ""
	must(t, j.savePending(savingFile, &p))
	v.run("x = 'new'")
	v.save(dir, "n")
	wantNothingLeft(t, v, dir, "n")
}
