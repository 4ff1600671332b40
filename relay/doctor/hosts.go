package doctor

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"

	"colabrelay/relay/hostconfig"
	"colabrelay/relay/program"
)

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
