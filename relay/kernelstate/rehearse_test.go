package kernelstate

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/stacks"
)

func TestVariablesThatWillNotLoadAreReportedByTheSave(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s stacks.Stack, pickler string) {
		v, dir := borrowVM(t, s), t.TempDir()
		v.run(without(picklers[pickler]...))
		v.runFile("unloadable.py")
		saved := v.save(dir, "n")
		checkSkipped(t, saved.Manifest.Skipped, nil)
		const missing = "TypeError: "
		const silent = "RuntimeError without a message, while loading it"
		wantWarnings(t, saved.Warnings, map[string]string{"a_problem": missing, "holds_it": "", "raises": silent, "ring": ""})
		// The trial left nothing in the kernel, and no __del__ ran.
		if got := v.run("print(Raises.tries, Fine.made, shared_state)"); got != "[] [] []\n" {
			t.Error(got)
		}
		if _, err := os.Stat(filepath.Join(v.dir, "deleted")); err == nil {
			t.Error("a __del__ ran")
		}

		v.forget()
		restored := v.restore(dir, "n")
		const shares = "it shares an object with a variable that can't be restored"
		checkSkipped(t, restored.Loaded.Failed, map[string]string{
			"a_problem": "", "holds_it": shares, "raises": silent, "ring": shares, "same_ring": shares,
		})
		got := v.run("print(history['loss'], len(history['word']), model_state['metric'], apart, array, touches.shared is shared_state)")
		if got != "[0.5, 0.4] 300 loss [1, 2] [0. 0. 0. 0.] True\n" {
			t.Error(got)
		}
	})
}

func TestTrialThatHangsOrDiesHasNoEffect(t *testing.T) {
	t.Parallel()
	const class = "class C:\n  def __init__(self): self.x = 1\n  def __setstate__(self, state):\n    "
	v, dir := borrowVM(t, stacks.Old(t)), t.TempDir()
	for code, want := range map[string]string{
		"import os; os._exit(3)": "loading it ended the process",
		"while True: pass":       "loading it did not end within 5 seconds",
	} {
		v.run(class + code + "\nc = C()\nd = [1]")
		saved := v.save(dir, "n")
		checkSkipped(t, saved.Manifest.Skipped, nil)
		if len(saved.Warnings) != 1 || !strings.HasPrefix(saved.Warnings[0], `"c" was saved`) || !strings.HasSuffix(saved.Warnings[0], want) {
			t.Errorf("%q", saved.Warnings)
		}
		if got := v.run("import os\ntry: print(os.waitpid(-1, os.WNOHANG))\nexcept ChildProcessError: print('no child')"); got != "no child\n" {
			t.Errorf("a child process is left: %s", got)
		}
	}
}

// wantWarnings checks that the warnings report a failed trial of these variables only. An
// empty reason in want means that the variable may be reported.
func wantWarnings(t *testing.T, got []string, want map[string]string) {
	t.Helper()
	var reported []string
	for _, line := range got {
		name, why, _ := strings.Cut(line, " was saved, but loading it was tried and failed: ")
		name = strings.Trim(name, `"`)
		reported = append(reported, name)
		if !strings.HasPrefix(why, want[name]) {
			t.Errorf("of %q: %s", name, why)
		}
	}
	for name, why := range want {
		if why != "" && !slices.Contains(reported, name) {
			t.Errorf("%q is not reported in %q", name, got)
		}
	}
}
