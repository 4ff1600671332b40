//go:build release

package installed

import (
	"bytes"
	"debug/macho"
	"debug/pe"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
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
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
	if err := json.Unmarshal([]byte(m.run("node", "--input-type=module", "-e", script)), &config); err != nil {
		t.Fatal(err)
	}
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
	if err := os.Mkdir(m.home+"/extension", 0o700); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join(module.Dir, "internal", "validators", "schemas", "2025-12-11.json"))
	if err != nil {
		t.Fatal(err)
	}
	entry, err := jsonschema.UnmarshalJSON(bytes.NewReader(read(t, file(t, "server.json"))))
	if err != nil {
		t.Fatal(err)
	}
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
