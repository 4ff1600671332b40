// Package doctor checks everything that a tool call needs, from the settings to the kernel
// of each runtime, and prints what works, what does not, and what to do about it.
//
// It changes nothing. Start reading at Run; report.runtime checks one runtime.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/config"
	"colabrelay/relay/hint"
	"colabrelay/relay/hostconfig"
	"colabrelay/relay/op"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/program"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
)

// Checkup is what Run checks.
type Checkup struct {
	Config   config.Config
	Settings config.Settings
	Version  string // of this relay
	// Transport makes the connections to runtimes that have a provider; nil for none.
	Transport func(pairing.Runtime) http.RoundTripper
}

// verdict begins each line of the report.
type verdict string

const (
	ok   verdict = "ok"
	warn verdict = "warn" // it works, with a drawback
	fail verdict = "fail" // a tool call would fail
)

// Finding is the result of one check.
type Finding struct {
	Verdict  verdict `json:"verdict"`
	Subject  string  `json:"subject"` // such as settings, or the name of a runtime
	Message  string  `json:"message"`
	NextStep string  `json:"next_step,omitempty"`
}

// report prints findings as they come, and keeps them.
type report struct {
	out      io.Writer
	colours  terminal.Colours
	width    int // of the subjects' column
	findings []Finding
}

func (r *report) line(v verdict, subject, format string, args ...any) {
	f := Finding{Verdict: v, Subject: subject, Message: plain.Line(fmt.Sprintf(format, args...))}
	r.findings = append(r.findings, f)
	mark := map[verdict]func(string) string{ok: r.colours.Good, warn: r.colours.Warning, fail: r.colours.Bad}[v]
	fmt.Fprintf(r.out, "%s %-*s  %s\n", mark(fmt.Sprintf("%-5s", v)), r.width, subject, f.Message)
}

// step prints what to do about the line before it.
func (r *report) step(format string, args ...any) {
	last := &r.findings[len(r.findings)-1]
	last.NextStep = plain.Line(fmt.Sprintf(format, args...))
	fmt.Fprintf(r.out, "%-5s %-*s  next step: %s\n", "", r.width, "", last.NextStep)
}

func (r *report) failures() (n int) {
	for _, f := range r.findings {
		if f.Verdict == fail {
			n++
		}
	}
	return n
}

// problem prints a line for err and its next step.
func (r *report) problem(v verdict, subject string, err error) {
	r.line(v, subject, "%v", err)
	if step := hint.Of(err).Person; step != "" {
		r.step("%s", step)
	}
}

// Run prints a report to out, line by line as the checks end, and returns its findings. It
// also returns an error if a check failed.
func Run(ctx context.Context, c Checkup, out io.Writer) ([]Finding, error) {
	all, inUse, unclear := Runtimes(c.Config, c.Settings)
	r := &report{out: out, colours: terminal.ColoursFor(out, c.Settings.Getenv), width: len("checkpoints")}
	for _, each := range all {
		r.width = max(r.width, len(each.Name))
	}
	r.line(ok, "relay", "%s, %s/%s", c.Version, runtime.GOOS, runtime.GOARCH)
	r.settings(c.Config)
	r.folder("downloads", c.Config.SaveDir)
	r.folder("checkpoints", c.Config.CheckpointDir)
	r.hosts(ctx, c)
	r.pairings(c.Config.Pairings, unclear)
	for _, each := range all {
		failed := fail
		if unclear == nil && each.Name != inUse.Name {
			failed = warn // only a call that names this runtime would fail
		}
		r.runtime(ctx, c, each, failed)
	}
	if n := r.failures(); n > 0 {
		return r.findings, fmt.Errorf("%s failed", plain.Count(n, "check"))
	}
	return r.findings, nil
}

// Runtimes returns all runtimes, and the one that a call uses if it names none, or why there is no
// such runtime.
func Runtimes(cfg config.Config, set config.Settings) (all []pairing.Runtime, inUse pairing.Runtime, unclear error) {
	if cfg.Pairings == nil {
		return nil, pairing.Runtime{}, nil // the report has this as a wrong setting
	}
	inUse, unclear = pairing.Resolve("", set.Get, cfg.Pairings)
	all, err := cfg.Pairings.List()
	if err != nil {
		unclear = err
	}
	if inUse.Name == pairing.EnvName {
		all = append([]pairing.Runtime{inUse}, all...)
	}
	return all, inUse, unclear
}

func (r *report) settings(c config.Config) {
	for _, err := range c.Problems {
		r.line(fail, "settings", "%v", err)
	}
	if len(c.Problems) > 0 {
		r.step("fix these settings in the MCP host's configuration (the relay's env block), or in this shell's environment")
		return
	}
	r.line(ok, "settings", "a call waits at most %s for a result", c.Hold)
}

// folder checks whether the relay can write to a folder.
func (r *report) folder(subject, dir string) {
	if dir == "" {
		return // the report has this as a wrong setting
	}
	f, err := os.CreateTemp(dir, ".colab-relay-doctor-*")
	if err != nil {
		r.line(fail, subject, "%v", err)
		r.step("make the folder writable, or choose another one (LOCAL_SAVE_DIR, CHECKPOINT_DIR)")
		return
	}
	f.Close()
	os.Remove(f.Name())
	r.line(ok, subject, "%s", dir)
}

// pairings checks the list of pairings, and whether it is clear which runtime a call uses.
func (r *report) pairings(store *pairing.Store, unclear error) {
	if store == nil {
		return
	}
	switch {
	case errors.Is(unclear, pairing.ErrAmbiguous):
		r.line(warn, "pairings", "%v", unclear)
		r.step("name the runtime in each call, or run `colab-relay use NAME` to choose the one that a call without a name uses")
	case unclear != nil:
		r.problem(fail, "pairings", unclear)
	}
	info, err := os.Stat(store.Path())
	if err != nil {
		return // nothing is paired yet
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		r.line(warn, "pairings", "other users of this computer can read the secrets in %s", store.Path())
		r.step("run `chmod 600 %q`; if other people use this computer, also make new secrets with `colab-relay init --rotate`", store.Path())
		return
	}
	if unclear == nil {
		r.line(ok, "pairings", "%s", store.Path())
	}
}

// runtime checks one runtime. A check of it that does not succeed is failed.
func (r *report) runtime(ctx context.Context, c Checkup, at pairing.Runtime, failed verdict) {
	if at.URL == "" {
		r.line(warn, at.Name, "%v, key id %s", pairing.ErrNoAddress, at.Secret.KeyID())
		r.step("start its executor, then run `colab-relay pair --name %s URL` with the URL it prints", at.Name)
		return
	}
	r.line(ok, at.Name, "%s, key id %s", at.URL, at.Secret.KeyID())
	if proxy := client.Proxy(at.URL); proxy != "" {
		r.line(ok, at.Name, "network: through the proxy %s", proxy)
	}
	got, err := op.Reach(client.WithPatience(ctx, 1), at, c.Transport) // one attempt shows what is wrong
	if err != nil {
		r.problem(failed, at.Name, err)
		return
	}
	r.line(ok, at.Name, "connected: %s", got.Summary())
	if got.Clock != 0 {
		r.line(warn, at.Name, "clock: %s from the executor's; the relay corrects this, which costs an extra request", got.Clock.Abs().Round(time.Second))
		r.step("set the clock of this computer or of the VM")
	}
	var before pairing.LastSeen // by a relay
	if c.Config.Pairings != nil {
		before = c.Config.Pairings.LastSeen(at.Key())
	}
	switch before.InstanceID {
	case "":
		r.line(ok, at.Name, "VM: no code was run on it from this computer yet (instance %s)", got.InstanceID)
	case got.InstanceID:
		r.line(ok, at.Name, "VM: the same as last time (instance %s)", got.InstanceID)
	default:
		r.line(warn, at.Name, "VM: a different one than last time; it does not have the earlier VM's variables and files (instance %s)", got.InstanceID)
	}
	switch {
	case got.Kernel.Status == contract.KernelDead:
		r.line(failed, at.Name, "kernel: dead: %s", got.Kernel.Reason)
		r.step("run `colab-relay restart`, or start the executor again (on Colab: run its cell again)")
	case before.KernelID != "" && before.KernelID != got.Kernel.KernelID:
		r.line(warn, at.Name, "kernel: a different one than last time, without the earlier kernel's variables")
	}
}

// hosts checks which MCP hosts start this relay.
func (r *report) hosts(ctx context.Context, c Checkup) {
	user, err := hostconfig.ThisUser(c.Settings.Getenv)
	if err != nil {
		r.line(warn, "host", "%v", err)
		return
	}
	this, _ := os.Executable()
	check := hostCheck{report: r, this: this, version: c.Version, versions: map[string]answer{}}
	found := false
	for _, h := range hostconfig.Hosts {
		before := ""
		for _, t := range append(h.Targets(user), h.ProjectTargets(user)...) {
			have, err := hostconfig.Installed(t)
			switch {
			case err == nil && have.Off != "":
				r.line(warn, "host", "%s does not start the relay: %s (%s)", t.Host.Title, have.Off, t.Path)
				r.step("turn it on in %s, or correct the file", h.Title)
			case err == nil && have.Command == before:
			case errors.Is(err, hostconfig.ErrNotInstalled):
				continue
			case err != nil:
				r.line(warn, "host", "%s: %v", h.Title, err)
				r.step("correct the file; `colab-relay install %s` says what is wrong with it", h.Name)
			default:
				check.run(ctx, t.Host, have.Command)
				before = have.Command
				r.network(t, user.Differing(have))
			}
			found = true
		}
	}
	if !found {
		r.line(warn, "host", "no supported MCP host is set up to start the relay")
		r.step("run `colab-relay install HOST` to set one up; `colab-relay install` lists the supported hosts")
	}
}

// network names variables of the network that differ between an entry and this shell.
func (r *report) network(t hostconfig.Target, names []string) {
	if len(names) > 0 {
		r.line(warn, "host", "the entry in %s does not set %s as this shell does", t.Path, strings.Join(names, ", "))
		r.step("if the relay reaches no runtime from %s, write them into \"env\" of the entry (docs/networks.md)", t.Host.Title)
	}
}

// hostCheck checks the programs that hosts start. It asks each only once.
type hostCheck struct {
	*report
	this, version string // this program
	versions      map[string]answer
}

type answer struct {
	version string
	err     error
}

func (c hostCheck) run(ctx context.Context, h hostconfig.Host, command string) {
	path := command
	if !strings.ContainsAny(command, `/\`) { // the host looks for it on its own PATH
		path, _ = exec.LookPath(command)
	}
	_, missing := os.Stat(path)
	switch {
	case path == "":
		c.line(warn, "host", "%s starts %s, which this shell does not find on PATH", h.Title, command)
		c.step("to be sure that it starts this relay, run `colab-relay install %s`", h.Name)
	case missing != nil:
		c.line(fail, "host", "%s is set up to start %s, which does not exist", h.Title, command)
		c.step("run `colab-relay install %s`", h.Name)
	case path == c.this:
		c.line(ok, "host", "%s starts this relay (%s)", h.Title, path)
	case !hostconfig.IsRelay(path):
		c.line(warn, "host", "%s starts another program: %s", h.Title, command)
		c.step("to use this relay instead, run `colab-relay install %s`", h.Name)
	default:
		c.ask(ctx, h, path)
	}
}

// ask compares the version of a relay with that of this program.
func (c hostCheck) ask(ctx context.Context, h hostconfig.Host, path string) {
	told, known := c.versions[path]
	if !known {
		told.version, told.err = program.Version(ctx, path)
		c.versions[path] = told
	}
	switch {
	case told.err != nil:
		c.line(fail, "host", "%s is set up to start %s, which does not work: %v", h.Title, path, told.err)
		c.step("run `colab-relay install %s`", h.Name)
	case told.version != c.version:
		c.line(warn, "host", "%s starts colab-relay %s (%s); this program is %s", h.Title, told.version, path, c.version)
		c.step("to make it start this version, run `colab-relay install %s`", h.Name)
	default:
		c.line(ok, "host", "%s starts colab-relay %s (%s)", h.Title, told.version, path)
	}
}
