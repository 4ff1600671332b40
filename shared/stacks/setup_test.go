package stacks

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/tier"
)

// machine is a pretended one: setup.sh runs on it with a pip that reaches no
// index, programs of our own before the real ones on PATH, and an ipykernel
// module of our own before the real one.
type machine struct {
	t       *testing.T
	bin     string
	modules string
	Folder  string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, bin: t.TempDir(), modules: t.TempDir(), Folder: filepath.Join(t.TempDir(), "python")}
	m.program("id", "echo 1000")
	m.program("apt-get", "exit 100")
	m.program("sshd", "exit 0")
	m.ipykernel("raise ImportError")
	return m
}

func (m *machine) ipykernel(source string) {
	m.write(filepath.Join(m.modules, "ipykernel.py"), source+"\n", 0o644)
}

func (m *machine) program(name, script string) {
	m.write(filepath.Join(m.bin, name), "#!/bin/sh\n"+script+"\n", 0o755)
}

func (m *machine) write(path, content string, mode os.FileMode) {
	m.t.Helper()
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) setUp(names ...string) (out string, err error) {
	m.t.Helper()
	script := filepath.Join(Root(), "shared", "stacks", "setup.sh")
	if _, err := os.ReadFile(script); err != nil { // so that go test's cache knows of it
		m.t.Fatal(err)
	}
	cmd := exec.Command("bash", append([]string{script, m.Folder}, names...)...)
	cmd.Env = append(os.Environ(),
		"PATH="+m.bin+":"+os.Getenv("PATH"), "SSHD_FOLDERS="+m.bin,
		"PYTHONPATH="+m.modules, "PYTHONDONTWRITEBYTECODE=1",
		"PIP_INDEX_URL=http://127.0.0.1:1/simple", "PIP_FIND_LINKS=", "PIP_CONFIG_FILE=/dev/null", "PIP_NO_CACHE_DIR=1",
	)
	b, err := cmd.CombinedOutput()
	m.t.Logf("setup.sh said:\n%s", b)
	return string(b), err
}

func (m *machine) mustHave(path string) {
	m.t.Helper()
	if _, err := os.Stat(filepath.Join(m.Folder, path)); err != nil {
		m.t.Errorf("%q is missing", path)
	}
}

func TestSetupWithoutIndexTakesTheSystemsIPyKernel(t *testing.T) {
	tier.Long(t)
	m := newMachine(t)
	m.ipykernel(`__version__ = "6.17.0"`)
	out, err := m.setUp()
	if err != nil {
		t.Fatalf("setup.sh: %v", err)
	}
	for _, want := range []string{"old is the system's: ipykernel 6.17.0", "new is left out: pip reaches no index", "tools is left out"} {
		if !strings.Contains(out, want) {
			t.Errorf("setup.sh does not say %q", want)
		}
	}
	m.mustHave("old/bin/python")
	m.mustHave("new.left-out")
	m.mustHave("data.left-out")
	m.mustHave("tools.left-out")
	m.mustHave("notebook.left-out")
	m.mustHave("server.left-out")
	m.mustHave("colabcli.left-out")
	if strings.Contains(out, "bridge") {
		t.Errorf("the environment of make bench is made without its name: %s", out)
	}
	if out, err := m.setUp("bridge"); err != nil || !strings.Contains(out, "bridge is left out") {
		t.Errorf("%s, %v", out, err)
	}
}

func TestSetupIsRunOnceUntilRequirementsChange(t *testing.T) {
	tier.Long(t)
	m := newMachine(t)
	m.ipykernel(`__version__ = "6.17.0"`)
	if _, err := m.setUp(); err != nil {
		t.Fatalf("setup.sh: %v", err)
	}
	kept := filepath.Join(m.Folder, "old", "kept")
	m.write(kept, "", 0o644)
	if _, err := m.setUp(); err != nil {
		t.Fatalf("setup.sh again: %v", err)
	}
	m.mustHave("old/kept")

	m.write(filepath.Join(m.Folder, "old", ".stamp"), "of other requirements", 0o644)
	if _, err := m.setUp(); err != nil {
		t.Fatalf("setup.sh after a change: %v", err)
	}
	if _, err := os.Stat(kept); err == nil {
		t.Error("an environment of other requirements was kept")
	}
}
