//go:build release

package installed

import (
	"net"
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

// Where npm runs no scripts, the first start downloads the program. Without the release it
// ends.
func TestTheLauncherDownloadsTheProgramOrSaysWhyNot(t *testing.T) {
	m := newMachine(t)
	tgz := m.home + "/relay.tgz"
	m.run("cp", file(t, pack+"-"+number+".tgz"), tgz)
	m.run("npm", "install", "--global", "--ignore-scripts", "--prefix", m.home+"/.local", tgz)
	m.isRelay(m.home + "/.local/bin/colab-relay")

	module := m.home + "/.local/lib/node_modules/" + pack
	m.run("rm", "-r", module+"/bin/linux-x64")
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	m.run("sed", "-i", "s|"+releases+"|http://"+silent.Addr().String()+"|", module+"/bin/fetch.js")
	out, err := m.try("", m.home+"/.local/bin/colab-relay", "version")
	if err == nil || !strings.Contains(out, "no answer within 15 s") || !strings.Contains(out, "Next step: ") {
		t.Errorf("it ended with %v and\n%s", err, out)
	}
}
