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

// pip itself says which wheel it would choose on other systems.
func TestPipFindsTheWheelOfEachPlatform(t *testing.T) {
	m := newMachine(t)
	pip := m.environment() + "/pip"
	for platform, want := range map[string]string{
		"macosx_12_0_x86_64": "macosx_12_0_universal2", "macosx_15_0_arm64": "macosx_12_0_universal2",
		"win_amd64": "win_amd64", "win_arm64": "win_arm64",
		"manylinux_2_17_aarch64": "manylinux2014_aarch64", "musllinux_1_1_x86_64": "manylinux2014_x86_64",
	} {
		m.run(pip, "download", "--pre", "--no-index", "--no-deps", "--only-binary=:all:", "--find-links", dist, "--dest", platform, "--platform", platform, pack)
		if found, _ := filepath.Glob(m.home + "/" + platform + "/*" + want + "*.whl"); len(found) != 1 {
			t.Errorf("on %s, pip did not choose the wheel for %s", platform, want)
		}
	}
}

func TestPipInstallsFromTheReleasesAddress(t *testing.T) {
	m := newMachine(t)
	bin := m.environment()
	m.run(bin+"/pip", "install", "--no-index", at(t, wheelName))
	m.isRelay(bin + "/colab-relay")
}

func TestPipxInstallsTheRelay(t *testing.T) {
	m := newMachine(t)
	m.run("pipx", "install", file(t, wheelName))
	m.isRelay(m.home + "/.local/bin/colab-relay")
}

func TestUvxRunsTheRelay(t *testing.T) {
	m := newMachine(t)
	m.isRelay("uvx", "--from", file(t, wheelName), "colab-relay")
	m.isRelay("uvx", "--from", at(t, wheelName), "colab-relay")
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

func TestNpmInstallsTheRelayFromOneFile(t *testing.T) {
	m := newMachine(t)
	m.run("npm", "install", "--global", "--prefix", m.home+"/.local", file(t, npmName))
	m.isRelay(m.home + "/.local/bin/colab-relay")
}

// The package for all platforms gets the right program from the release.
func TestNpmInstallsTheRelayFromTheReleasesAddress(t *testing.T) {
	m := newMachine(t)
	m.isRelay("npx", "--yes", at(t, pack+"-"+number+".tgz"))
	m.run("npm", "install", "--global", "--prefix", m.home+"/.local", at(t, pack+"-"+number+".tgz"))
	m.isRelay(m.home + "/.local/bin/colab-relay")
	if out, err := m.try("", m.home+"/.local/bin/colab-relay", "no-such-command"); err == nil || !strings.Contains(out, "no-such-command") {
		t.Errorf("an error ended with %v and\n%s", err, out)
	}
	m.run("npm", "uninstall", "--global", "--prefix", m.home+"/.local", pack)
	if exists(m.home + "/.local/bin/colab-relay") {
		t.Error("npm uninstall left the command behind")
	}
}

func TestTheLauncherSaysThatTheProgramIsMissing(t *testing.T) {
	m := newMachine(t)
	m.run("npm", "install", "--global", "--prefix", m.home+"/.local", at(t, pack+"-"+number+".tgz"))
	m.run("rm", "-r", m.home+"/.local/lib/node_modules/"+pack+"/node_modules")
	out, err := m.try("", m.home+"/.local/bin/colab-relay", "version")
	if err == nil || !strings.Contains(out, pack+"-linux-x64 is not installed") {
		t.Errorf("it ended with %v and\n%s", err, out)
	}
}
