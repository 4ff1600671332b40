package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
