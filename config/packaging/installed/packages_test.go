//go:build release

package installed

import (
	"path/filepath"
	"strings"
	"testing"
)

var (
	wheelName    = strings.ReplaceAll(pack, "-", "_") + "-*-manylinux*_x86_64.whl"
	executorName = strings.ReplaceAll(executorPack, "-", "_") + "-*-manylinux*_x86_64.whl"
	npmName      = pack + "-linux-x64-*.tgz"
)

// environment makes a Python environment and returns its folder of commands.
func (m *machine) environment() string {
	m.t.Helper()
	m.run("python3", "-m", "venv", "venv")
	return filepath.Join(m.home, "venv", "bin")
}

func TestPipInstallsTheRelayFromAFileAndRemovesIt(t *testing.T) {
	m := newMachine(t)
	bin := m.environment()
	m.run(bin+"/pip", "install", "--no-index", file(t, wheelName))
	m.isRelay(bin + "/colab-relay")
	if out := m.run(bin+"/pip", "show", "--files", pack); !strings.Contains(out, "bin/colab-relay") {
		t.Errorf("pip shows\n%s", out)
	}
	m.run(bin+"/pip", "uninstall", "--yes", pack)
	if exists(bin + "/colab-relay") {
		t.Error("pip uninstall left the program behind")
	}
}

// As in Colab: !pip install FILE, then !COMMAND.
func TestTheExecutorsWheelFindsItsPython(t *testing.T) {
	m := newMachine(t)
	bin := m.environment()
	m.run(bin+"/pip", "install", file(t, executorName))
	if got := m.run(bin+"/"+executorPack, "version"); got != version {
		t.Errorf("its version is %q, want %q", got, version)
	}
	out, _ := m.try("", bin+"/"+executorPack, "doctor") // its exit code depends on this machine
	if !strings.Contains(out, bin+"/python3") || !strings.Contains(out, "ipykernel") {
		t.Errorf("doctor printed\n%s", out)
	}
}

func TestNpxRunsTheRelayFromOneFile(t *testing.T) {
	m := newMachine(t)
	m.run("cp", file(t, npmName), "relay.tgz")
	m.isRelay("npx", "--yes", "./relay.tgz")
	m.isRelay("npx", "--yes", "--package", file(t, npmName), "colab-relay") // with a full path, npx needs the name
	m.holdsOnly("relay.tgz", ".npm", "colab_results", ".config", ".cache", ".local")
}

// The package for all platforms downloads the program of its own platform, and only that.
func TestNpmInstallsTheRelayFromTheReleasesAddress(t *testing.T) {
	m := newMachine(t)
	m.isRelay("npx", "--yes", at(t, pack+"-"+number+".tgz"))
	m.run("npm", "install", "--global", "--prefix", m.home+"/.local", at(t, pack+"-"+number+".tgz"))
	m.isRelay(m.home + "/.local/bin/colab-relay")
	asked.Lock()
	for _, name := range asked.paths {
		if other, ours := strings.HasPrefix(name, pack+"-"), name == filepath.Base(file(t, npmName)) || name == pack+"-"+number+".tgz"; other && !ours && strings.HasSuffix(name, ".tgz") {
			t.Errorf("it downloaded %s, which is for another platform", name)
		}
	}
	asked.Unlock()
	if out, err := m.try("", m.home+"/.local/bin/colab-relay", "no-such-command"); err == nil || !strings.Contains(out, "no-such-command") {
		t.Errorf("an error ended with %v and\n%s", err, out)
	}
	m.run("npm", "uninstall", "--global", "--prefix", m.home+"/.local", pack)
	if exists(m.home + "/.local/bin/colab-relay") {
		t.Error("npm uninstall left the command behind")
	}
}
