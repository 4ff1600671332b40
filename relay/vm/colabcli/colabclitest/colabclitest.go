// Package colabclitest installs a stand-in for Google's command line, colab.py, and reads the
// source of the real one. It is for tests only. Start reading at Install.
package colabclitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"colabrelay/shared/stacks"
)

// Program is an installed stand-in, with a Google of its own.
type Program struct {
	Path string // of the program colab

	t        testing.TB
	google   string // folder of the VMs and the faults
	home     string
	faulting sync.Mutex
}

// Install installs the stand-in in a folder of its own. All its VMs end with the test.
func Install(t testing.TB) *Program {
	t.Helper()
	p := &Program{Path: filepath.Join(t.TempDir(), "colab"), t: t, google: t.TempDir(), home: t.TempDir()}
	for _, name := range []string{"colab.py", "standin.py", "table.json"} {
		if _, err := os.ReadFile(source(name)); err != nil { // so that go test's cache knows of it
			t.Fatal(err)
		}
	}
	// Only exec needs packages; without them Python starts twice as fast.
	script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = exec ] || fast='-S -E -s'\nSTANDIN='%s' exec '%s' -B $fast '%s' \"$@\"\n", p.google, stacks.Old(t).Python, source("colab.py"))
	syscall.ForkLock.RLock() // a process that is started now would hold the file: "text file busy"
	err := os.WriteFile(p.Path, []byte(script), 0o700)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.end(p.Endpoints()...) })
	return p
}

func source(name string) string {
	return filepath.Join(stacks.Root(), "relay", "vm", "colabcli", "colabclitest", name)
}

// Environ is the environment of a relay that uses the stand-in.
func (p *Program) Environ() []string {
	return []string{"HOME=" + p.home, "PATH=" + filepath.Dir(p.Path) + ":" + os.Getenv("PATH"), "TMPDIR=" + os.Getenv("TMPDIR")}
}

// Fault makes something go wrong from now on; a value of nil ends it. The names are:
// unreachable, lost: true; hold_new: true, which holds `colab new` after it asked for its VM; and
// for one call only, refuse: an HTTP status, kill_new: true.
func (p *Program) Fault(name string, value any) {
	p.t.Helper()
	p.faulting.Lock()
	defer p.faulting.Unlock()
	path, faults := filepath.Join(p.google, "faults.json"), map[string]any{}
	if data, err := os.ReadFile(path); err == nil {
		if err := json.Unmarshal(data, &faults); err != nil {
			p.t.Fatal(err)
		}
	}
	faults[name] = value
	data, err := json.Marshal(faults)
	if err == nil {
		err = os.WriteFile(path+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path) // `colab new` may read it meanwhile
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// Endpoints returns Google's names of all VMs.
func (p *Program) Endpoints() []string {
	files, err := filepath.Glob(filepath.Join(p.google, "vms", "*.json"))
	if err != nil {
		p.t.Fatal(err)
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(filepath.Base(file), ".json")
	}
	return files
}

// Asked reports whether a VM was asked for. From then on `colab new` writes nothing until the
// VM exists.
func (p *Program) Asked() bool {
	_, err := os.Stat(filepath.Join(p.google, "asked.json"))
	return err == nil
}

// Names returns the endpoints of the VMs that the program knows, by name.
func (p *Program) Names() map[string]string {
	names := map[string]string{}
	data, err := os.ReadFile(filepath.Join(p.home, ".config", "colab-cli", "sessions.json"))
	if err == nil {
		err = json.Unmarshal(data, &names)
	}
	if err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	return names
}

// Start starts a VM as the user would with options of `colab new`.
func (p *Program) Start(options ...string) {
	p.t.Helper()
	p.run(append([]string{"new"}, options...)...)
}

// End ends the VM with that name, as Google does at any time.
func (p *Program) End(name string) { p.end(p.Names()[name]) }

// EndEndpoint ends the VM with that name of Google's.
func (p *Program) EndEndpoint(endpoint string) { p.end(endpoint) }

func (p *Program) end(endpoints ...string) { p.run(append([]string{"standin-end"}, endpoints...)...) }

func (p *Program) run(args ...string) {
	cmd := exec.Command(p.Path, args...)
	cmd.Env = p.Environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Errorf("colab %q: %v: %s", args, err, out)
	}
}

// Call is one call of the program.
type Call struct {
	Argv    []string
	Environ map[string]string
}

// Calls returns all calls of the program.
func (p *Program) Calls() []Call {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.google, "calls"))
	if err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	var calls []Call
	for line := range bytes.Lines(data) {
		var c Call
		if err := json.Unmarshal(line, &c); err != nil {
			p.t.Fatal(err)
		}
		calls = append(calls, c)
	}
	return calls
}

// Command is the options of a command, and how many arguments it takes, least and most.
type Command struct {
	Options   []Option `json:"options"`
	Arguments [2]int   `json:"arguments"`
}

// Option is an option by all its flags, and whether a value follows it.
type Option struct {
	Flags []string `json:"flags"`
	Value bool     `json:"value"`
}

// ReadTable returns what the stand-in's commands take, by name.
func ReadTable(t testing.TB) map[string]Command {
	t.Helper()
	text, err := os.ReadFile(source("table.json"))
	return read(t, text, err)
}

// ReadWheel returns what the commands of Google's program take, from a wheel's source.
func ReadWheel(t testing.TB, wheel string) map[string]Command {
	t.Helper()
	if _, err := os.ReadFile(source("wheel.py")); err != nil { // so that go test's cache knows of it
		t.Fatal(err)
	}
	out, err := exec.Command(stacks.Old(t).Python, source("wheel.py"), wheel).Output()
	return read(t, out, err)
}

func read(t testing.TB, text []byte, err error) (commands map[string]Command) {
	t.Helper()
	if err == nil {
		err = json.Unmarshal(text, &commands)
	}
	if err != nil {
		t.Fatal(err)
	}
	return commands
}
