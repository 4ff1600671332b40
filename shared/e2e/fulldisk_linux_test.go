package e2e

import (
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
	if a := call(t, h, "upload_to_colab", up); a.Error() != "disk_full" || !strings.Contains(a.Text, "Delete files on the VM") {
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
