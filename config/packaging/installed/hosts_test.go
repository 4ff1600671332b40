//go:build release

package installed

import (
	"bytes"
	"debug/macho"
	"debug/pe"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"colabrelay/shared/within"
)

func TestTheArchivesHoldTheProgram(t *testing.T) {
	m := newMachine(t)
	cmd := exec.Command("sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS")
	cmd.Dir = dist
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("SHA256SUMS: %v\n%s", err, out)
	}
	m.run("tar", "xzf", file(t, "colab-relay_*_linux_amd64.tar.gz"))
	m.isRelay(m.home + "/colab-relay_" + number + "_linux_amd64/colab-relay")
	m.run("tar", "xzf", file(t, executorPack+"_*_linux_amd64.tar.gz"))
	executor := m.home + "/" + executorPack + "_" + number + "_linux_amd64/" + executorPack
	if got := m.run(executor, "version"); got != version {
		t.Errorf("the executor is version %q", got)
	}
	sameFile(t, executor, file(t, "executor-linux-amd64"))
}

func TestTheProgramForMacOSIsUniversalAndSigned(t *testing.T) {
	m := newMachine(t)
	m.run("tar", "xzf", file(t, "colab-relay_*_darwin_universal.tar.gz"))
	program, err := macho.OpenFat(m.home + "/colab-relay_" + number + "_darwin_universal/colab-relay")
	must(t, err)
	defer program.Close()
	if len(program.Arches) != 2 || program.Arches[0].Cpu != macho.CpuAmd64 || program.Arches[1].Cpu != macho.CpuArm64 {
		t.Fatalf("it has the processors %v", program.Arches)
	}
	const codeSignature = 0x1d // LC_CODE_SIGNATURE; macOS runs no arm64 program without one
	for _, load := range program.Arches[1].Loads {
		if program.Arches[1].ByteOrder.Uint32(load.Raw()) == codeSignature {
			return
		}
	}
	t.Error("the program for arm64 has no signature")
}

func TestTheProgramsForWindowsAreForTheirProcessors(t *testing.T) {
	for arch, machine := range map[string]uint16{"amd64": pe.IMAGE_FILE_MACHINE_AMD64, "arm64": pe.IMAGE_FILE_MACHINE_ARM64} {
		m := newMachine(t)
		m.run("python3", "-m", "zipfile", "-e", file(t, "colab-relay_*_windows_"+arch+".zip"), ".")
		program, err := pe.Open(m.home + "/colab-relay_" + number + "_windows_" + arch + "/colab-relay.exe")
		must(t, err)
		if program.Machine != machine {
			t.Errorf("the program for %s is for the processor %#x", arch, program.Machine)
		}
		program.Close()
	}
}

// The official program accepts the bundle, and the official code that hosts use makes a
// command of it.
func TestTheBundleIsValidAndRuns(t *testing.T) {
	m := newMachine(t)
	bundle := file(t, "*.mcpb")
	m.run("mcpb", "unpack", bundle, "unpacked")
	if out := m.run("mcpb", "validate", "unpacked/manifest.json"); !strings.Contains(out, "passes") {
		t.Errorf("mcpb validate: %s", out)
	}
	if out := m.run("mcpb", "info", bundle); !strings.Contains(out, filepath.Base(bundle)) {
		t.Errorf("mcpb info: %s", out)
	}
	for _, name := range []string{"colab-relay", "colab-relay-macos", "colab-relay-linux-amd64", "colab-relay-linux-arm64", "colab-relay.exe"} {
		mustBeProgram(t, m.home+"/unpacked/server/"+name)
	}
	script := `
import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { getMcpConfigForManifest } from ` + quoted(tools+"/node_modules/@anthropic-ai/mcpb/dist/node.js") + `;
const manifest = JSON.parse(readFileSync("unpacked/manifest.json", "utf8"));
const config = await getMcpConfigForManifest({ manifest, extensionPath: process.cwd() + "/unpacked", systemDirs: { HOME: homedir() }, userConfig: {}, pathSeparator: "/" });
console.log(JSON.stringify(config));`
	var config struct {
		Command string
		Args    []string
		Env     map[string]string
	}
	must(t, json.Unmarshal([]byte(m.run("node", "--input-type=module", "-e", script)), &config))
	for name, value := range config.Env {
		if strings.Contains(value, "${") {
			t.Errorf("a host that asks for nothing sets %s=%s", name, value)
		}
		m.env = append(m.env, name+"="+value)
	}
	m.answersHost(config.Command, config.Args...)
}

func quoted(text string) string {
	b, _ := json.Marshal(text) // text is always JSON
	return string(b)
}

// Claude Code itself accepts the plugin, installs it and connects to the relay in it.
func TestClaudeCodeInstallsThePlugin(t *testing.T) {
	m := newMachine(t)
	m.run("mcpb", "unpack", file(t, "colab-relay-claude-code-*.zip"), "plugin") // keeps the modes
	m.run("claude", "plugin", "validate", "--strict", "plugin")
	m.run("claude", "plugin", "marketplace", "add", m.home+"/plugin")
	m.run("claude", "plugin", "install", "colab-relay@colab-relay")
	if out := m.run("claude", "mcp", "list"); !strings.Contains(out, "colab-relay serve - ✔ Connected") {
		t.Errorf("claude mcp list:\n%s", out)
	}
}

// Gemini CLI itself accepts the extension, installs it and connects to the relay in it.
func TestGeminiInstallsTheExtension(t *testing.T) {
	m := newMachine(t)
	must(t, os.Mkdir(m.home+"/extension", 0o700))
	m.run("tar", "xzf", file(t, "linux.x64.colab-relay.tar.gz"), "-C", "extension")
	m.run("gemini", "extensions", "validate", "extension")
	if out, err := m.try("y\n", "gemini", "extensions", "install", "--consent", m.home+"/extension"); err != nil {
		t.Fatalf("gemini extensions install: %v\n%s", err, out)
	}
	out, err := m.try("", "gemini", "mcp", "list")
	if err != nil || !strings.Contains(out, "Connected") {
		t.Errorf("gemini mcp list: %v\n%s", err, out)
	}
	m.isRelay(m.home + "/.gemini/extensions/colab-relay/bin/colab-relay")
}

// The schema is part of the registry's own Go module.
func TestTheRegistryEntryFollowsItsSchema(t *testing.T) {
	out, err := exec.Command("go", "mod", "download", "-json", "github.com/modelcontextprotocol/registry@v1.8.7").Output()
	must(t, err)
	var module struct{ Dir string }
	must(t, json.Unmarshal(out, &module))
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join(module.Dir, "internal", "validators", "schemas", "2025-12-11.json"))
	must(t, err)
	entry, err := jsonschema.UnmarshalJSON(bytes.NewReader(read(t, file(t, "server.json"))))
	must(t, err)
	if err := schema.Validate(entry); err != nil {
		t.Error(err)
	}
}

// The relay knows its release: the cell needs no filling in.
func TestBootstrapPrintsTheCellOfTheRelease(t *testing.T) {
	m := newMachine(t)
	m.run("tar", "xzf", file(t, "colab-relay_*_linux_amd64.tar.gz"))
	relay := m.home + "/colab-relay_" + number + "_linux_amd64/colab-relay"
	for name, args := range map[string][]string{"cell.ipy": {"bootstrap"}, "colab-relay.ipynb": {"bootstrap", "--notebook"}} {
		if got, want := m.run(relay, args...), strings.TrimSpace(string(read(t, file(t, name)))); got != want {
			t.Errorf("colab-relay %q does not print %s:\n%s", args, name, got)
		}
	}
}

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
	must(t, err)
	defer silent.Close()
	m.run("sed", "-i", "s|"+releases+"|http://"+silent.Addr().String()+"|", module+"/bin/fetch.js")
	out, err := m.try("", m.home+"/.local/bin/colab-relay", "version")
	if err == nil || !strings.Contains(out, "no answer within 15 s") || !strings.Contains(out, "Next step: ") {
		t.Errorf("it ended with %v and\n%s", err, out)
	}
}

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
	must(t, os.WriteFile(m.home+"/train.py", []byte(trainProgram), 0o600))
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
	must(m.t, cmd.Start())
	m.t.Cleanup(func() { _ = cmd.Wait() }) // the context is cancelled by now
	var info struct{ Pairing string }
	within.Until(m.t, "the executor is ready", func() bool {
		b, err := os.ReadFile(ready) // it may not be written completely
		return err == nil && json.Unmarshal(b, &info) == nil
	})
	return info.Pairing
}
