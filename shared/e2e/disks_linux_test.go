package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/smalldisk"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// The VM's disk is full: code still runs, once, also across a kill of the executor; an upload says
// what is wrong. When there is room again, all goes on.
func TestAFullDiskOfTheVMLosesNoRun(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	disk := smalldisk.Run(t, 32)
	if disk == "" {
		return
	}
	elsewhere := t.TempDir()
	ran := func() string {
		text, _ := os.ReadFile(filepath.Join(elsewhere, "ran"))
		return string(text)
	}
	e := startExecutor(t, harness.ExecutorConfig{Python: stacks.Old(t).Python, Dir: disk})
	h := startHost(t, e.Ready.LocalURL, harness.HostConfig{Dir: elsewhere})
	want(t, quick(t, h, fmt.Sprintf("kept = 7\ndef ran(n): open(%q, 'a').write(f'{n} ')", filepath.Join(elsewhere, "ran"))), map[string]any{"success": true})
	filler := filepath.Join(disk, "filler")
	smalldisk.Fill(t, filler)

	first := quick(t, h, "ran(1)\nprint('on a full disk', kept)")
	want(t, first, map[string]any{"success": true, "stdout": "on a full disk 7\n"})
	local := filepath.Join(elsewhere, "up.bin")
	sum := bigFile(t, local, 3<<20)
	up := map[string]any{"local_path": local, "remote_path": "up.bin"}
	if a := call(t, h, "upload_to_colab", up); a.Error() != "disk_full" || !strings.Contains(a.Text, "Free disk space on the VM") {
		t.Errorf("an upload: %s", a.Text)
	}
	long := call(t, h, "run_code_quick", map[string]any{"code": "ran(2)\nfor n in range(20_000): print('line', n)"})
	want(t, long, map[string]any{"success": true, "status": "succeeded"})
	if !strings.Contains(long.Text, "disk is full") {
		t.Errorf("the answer does not say that the disk is full: %s", long.Text)
	}

	lines := map[string]int{first.String("execution_id"): 1, long.String("execution_id"): 20_000}

	e.Kill()
	startExecutor(t, e.Config)
	for _, before := range []harness.Answer{first, long} { // the answer said so if the output was not saved
		a := call(t, h, "get_execution", map[string]any{"execution_id": before.String("execution_id")})
		want(t, a, map[string]any{"status": "succeeded"})
		if a.String("stdout") != before.String("stdout") && !strings.Contains(before.Text, "disk is full") {
			t.Errorf("an answer without a warning, %s\nand after a kill: %s", before.Text, a.Text)
		}
	}
	for _, before := range []harness.Answer{first, long} { // the laptop has what it was sent
		logs := harness.HostConfig{
			Binary: binaries.Relay, Args: []string{"logs", before.String("execution_id")}, Dir: elsewhere,
			Env: []string{"COLAB_URL=" + e.Ready.LocalURL, "COLAB_SECRET=" + secret},
		}.Command()
		out, err := logs.Output()
		if shown := before.String("stdout"); err != nil || shown[len(shown)-10:] != string(out[max(0, len(out)-10):]) || strings.Count(string(out), "\n") != lines[before.String("execution_id")] {
			t.Errorf("logs after a kill: %v, %d bytes, ending with %q", err, len(out), out[max(0, len(out)-100):])
		}
	}
	if got := ran(); got != "1 2 " {
		t.Errorf("after a kill, ran: %q", got)
	}
	want(t, quick(t, h, fmt.Sprintf("import os\nos.remove(%q)\nprint('room')", filler)), map[string]any{"success": true, "stdout": "room\n"})
	want(t, call(t, h, "upload_to_colab", up), map[string]any{"success": true, "sha256": sum})
	a := quick(t, h, "print('saved')")
	if strings.Contains(a.Text, "disk is full") {
		t.Errorf("with room again: %s", a.Text)
	}
}

// The laptop's disk is full: runs go on, and everything that needs the disk says so, leaves what
// was there as it was, and works when there is room again.
func TestAFullDiskOfTheLaptopLosesNothing(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	disk := smalldisk.Run(t, 16)
	if disk == "" {
		return
	}
	e := startExecutor(t, harness.ExecutorConfig{Python: stacks.Old(t).Python})
	h := startHost(t, e.Ready.LocalURL, harness.HostConfig{Dir: disk, Env: []string{
		"RELAY_TOOLSETS=core,notebook", "LOCAL_SAVE_DIR=" + disk + "/saved", "CHECKPOINT_DIR=" + disk + "/checkpoints", "RELAY_NOTEBOOK_DIRS=" + disk,
	}})
	sum := bigFile(t, filepath.Join(e.Config.Dir, "model.bin"), 5<<20)
	notebook := filepath.Join(disk, "n.ipynb")
	cell := map[string]any{"notebook_path": notebook, "code": "1"}
	want(t, call(t, h, "add_code_cell", cell), map[string]any{"success": true})
	chunks := map[string]any{"setup_code": "did = []", "loop_code": "did.append(i)", "n_iterations": 6, "batch_size": 2, "checkpoint_name": "loop"}
	want(t, quick(t, h, "did = []\ndata = bytes(range(256)) * 20_000"), map[string]any{"success": true})
	text := readAll(t, notebook)
	filler := filepath.Join(disk, "filler")
	smalldisk.Fill(t, filler)

	want(t, quick(t, h, "print('runs')"), map[string]any{"success": true, "stdout": "runs\n"})
	command := harness.HostConfig{
		Binary: binaries.Relay, Args: []string{"run", "-c", "print('in a terminal')"}, Dir: disk,
		Env: []string{"COLAB_URL=" + e.Ready.LocalURL, "COLAB_SECRET=" + secret},
	}.Command()
	var shown, said bytes.Buffer
	command.Stdout, command.Stderr = &shown, &said
	if err := command.Run(); err != nil || shown.String() != "in a terminal\n" || !strings.Contains(said.String(), "could not be saved in the history on this computer") || strings.Count(said.String(), "\n") != 1 {
		t.Errorf("a command: %v, %q, %q", err, shown.String(), said.String())
	}
	needs := []struct {
		tool string
		args map[string]any
	}{
		{"download_from_colab", map[string]any{"remote_path": "model.bin"}},
		{"save_kernel_state", map[string]any{"name": "state"}},
		{"add_code_cell", cell},
		{"run_chunked_operation", chunks},
	}
	for _, c := range needs {
		a := call(t, h, c.tool, c.args)
		if !a.IsError || !strings.Contains(a.Text, "space") && !strings.Contains(a.Text, "full") {
			t.Errorf("%s on a full disk: %s", c.tool, a.Text)
		}
	}
	if readAll(t, notebook) != text {
		t.Error("the notebook changed")
	}
	if _, err := os.Stat(filepath.Join(disk, "saved", "model.bin")); !os.IsNotExist(err) {
		t.Errorf("the download has its name: %v", err)
	}
	must(t, os.Remove(filler))
	for _, c := range needs {
		a := call(t, h, c.tool, c.args)
		for a.Fields["can_continue"] == true && !a.IsError {
			a = call(t, h, c.tool, c.args)
		}
		want(t, a, map[string]any{"success": true})
	}
	if got := fileDigest(t, filepath.Join(disk, "saved", "model.bin")); got != sum {
		t.Errorf("the download has the SHA-256 %s, want %s", got, sum)
	}
	want(t, quick(t, h, "did"), map[string]any{"result": "[0, 1, 2, 3, 4, 5]"})
}

// Both programs start on folders in which every file is damaged, work, and delete none of it.
func TestBothProgramsStartOnDamagedFolders(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	for name, damage := range map[string]func(path string) ([]byte, error){"noise": fillWithNoise, "pipes": replaceByPipe} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := startExecutor(t, harness.ExecutorConfig{})
			laptop := t.TempDir()
			env := []string{"LOCAL_SAVE_DIR=" + laptop + "/saved", "CHECKPOINT_DIR=" + laptop + "/checkpoints"}
			h := startHost(t, e.Ready.LocalURL, harness.HostConfig{Dir: laptop, Env: env})
			chunks := map[string]any{"setup_code": "did = []", "loop_code": "did.append(i)", "n_iterations": 4, "batch_size": 2, "checkpoint_name": "loop"}
			want(t, quick(t, h, "for n in range(5): print('line', n)"), map[string]any{"success": true})
			want(t, call(t, h, "run_chunked_operation", chunks), map[string]any{"success": true})
			h.Kill()
			e.Kill()
			content := damageAll(t, damage, e.Config.Dir, laptop)

			e = startExecutor(t, e.Config)
			h = startHost(t, e.Ready.LocalURL, harness.HostConfig{Dir: laptop, Env: env})
			want(t, quick(t, h, "print(6 * 7)"), map[string]any{"success": true, "stdout": "42\n"})
			if a := call(t, h, "run_chunked_operation", chunks); a.Error() != "checkpoint_damaged" {
				t.Errorf("a damaged checkpoint is used: %s", a.Text)
			}
			chunks["on_change"] = "restart"
			if a := call(t, h, "run_chunked_operation", chunks); a.IsError || !strings.Contains(a.Text, ".damaged-") {
				t.Errorf("a new run in place of a damaged one: %s", a.Text)
			}
			for path, text := range content {
				if !isBelow(t, text, e.Config.Dir, laptop) {
					t.Errorf("what was in %q is gone", path)
				}
			}
		})
	}
}

// damageAll damages the files of the programs below the folders, except locks and the log in
// which they say what is damaged. It returns what the damaged ones contain.
func damageAll(t *testing.T, damage func(string) ([]byte, error), folders ...string) map[string][]byte {
	t.Helper()
	content, count := map[string][]byte{}, 0
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() || strings.HasSuffix(path, "lock") || strings.HasSuffix(path, ".log") {
				return err
			}
			text, err := damage(path)
			count++
			if len(text) > 0 {
				content[path] = text
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d files are damaged", count)
	return content
}

func fillWithNoise(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	text := make([]byte, max(info.Size(), 100))
	for i := range text {
		text[i] = byte(rand.Uint32())
	}
	return text, os.WriteFile(path, text, 0o600)
}

func replaceByPipe(path string) ([]byte, error) {
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return nil, syscall.Mkfifo(path, 0o600)
}

// isBelow reports whether a file that begins with text is below one of the folders.
func isBelow(t *testing.T, text []byte, folders ...string) bool {
	t.Helper()
	found := false
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
			if err != nil || found || !e.Type().IsRegular() {
				return err
			}
			has, err := os.ReadFile(path)
			found = err == nil && bytes.HasPrefix(has, text)
			return err
		})
		if err != nil {
			t.Error(fmt.Errorf("looking for what was damaged: %w", err))
		}
	}
	return found
}
