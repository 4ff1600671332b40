//go:build release

package installed

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"colabrelay/shared/within"
)

const trainProgram = `import sys
for n in range(int(sys.argv[2])):
    print("epoch", n + 1)
`

// plotProgram shows a picture of one pixel.
const plotProgram = `import base64
from IPython.display import Image
Image(data=base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="))`

// A new user installs the relay into each host, pairs, runs, comes back to a run, exports
// and uninstalls, with the archive and the executor's wheel.
func TestANewUsersWayFromInstallToUninstall(t *testing.T) {
	m := newMachine(t)
	bin := m.environment()
	m.run(bin+"/pip", "install", file(t, executorName))
	m.run("tar", "xzf", file(t, "colab-relay_*_linux_amd64.tar.gz"))
	for host := range strings.FieldsSeq("claude-desktop claude-code cursor vscode codex gemini antigravity windsurf zed") {
		m.run(m.home+"/colab-relay_"+number+"_linux_amd64/colab-relay", "install", host)
	}
	relay := m.home + "/.local/share/colab-relay/bin/colab-relay"
	m.prints("connected: executor", relay, "pair", m.startExecutor(bin+"/"+executorPack))
	if err := os.WriteFile(m.home+"/train.py", []byte(trainProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	m.prints("epoch 2", relay, "run", "train.py", "--epochs", "2")
	m.prints(".png", relay, "run", "-c", plotProgram)
	id := m.run(relay, "run", "--detach", "train.py", "--epochs", "3")
	m.prints("epoch 3", relay, "attach", id)
	m.run(relay, "export", "session.ipynb")
	if notebook := string(read(t, m.home+"/session.ipynb")); !strings.Contains(notebook, "image/png") || !strings.Contains(notebook, "epoch 3") {
		t.Errorf("the notebook lacks the picture or the output:\n%s", notebook)
	}
	m.run(relay, "uninstall", "--all")
	for _, gone := range []string{relay, m.home + "/.cursor", m.home + "/.claude.json", m.home + "/.codex"} {
		if exists(gone) {
			t.Errorf("uninstall left %s behind", gone)
		}
	}
}

// prints fails unless a command succeeds and prints a text.
func (m *machine) prints(want, name string, args ...string) {
	m.t.Helper()
	if out, err := m.try("", name, args...); err != nil || !strings.Contains(out, want) {
		m.t.Errorf("%s %q: %v; want %q in\n%s", name, args, err, want, out)
	}
}

// startExecutor starts an executor without a tunnel and returns its pairing string.
func (m *machine) startExecutor(program string) string {
	m.t.Helper()
	ready := m.home + "/ready.json"
	cmd := exec.CommandContext(m.t.Context(), program, "--tunnel", "none", "--listen", "127.0.0.1:0", "--ready-file", ready)
	cmd.Dir, cmd.Env = m.home, m.env
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = within.Limit
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = cmd.Wait() }) // the context is cancelled by now
	var info struct{ Pairing string }
	within.Until(m.t, "the executor is ready", func() bool {
		b, err := os.ReadFile(ready) // it may not be written completely
		return err == nil && json.Unmarshal(b, &info) == nil
	})
	return info.Pairing
}
