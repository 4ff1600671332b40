package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"colabrelay/relay/hint"
	"colabrelay/relay/hostconfig"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
)

func doctorCommand(set *settings, std streams) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Say what works, what does not, and what to do", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return doctor(cmd.Context(), *set, std) },
	}
}

// verdict begins each line of the doctor.
type verdict string

const (
	ok   verdict = "ok"
	warn verdict = "warn" // works, with a loss
	fail verdict = "fail" // a tool call would fail
)

// report prints findings and counts the failures.
type report struct {
	w      io.Writer
	width  int // of the subjects
	failed int
}

func (r *report) say(v verdict, subject, format string, args ...any) {
	if v == fail {
		r.failed++
	}
	fmt.Fprintf(r.w, "%-5s %-*s  %s\n", v, r.width, subject, plain.Line(fmt.Sprintf(format, args...)))
}

// step says what to do about the line before it.
func (r *report) step(format string, args ...any) {
	fmt.Fprintf(r.w, "%-5s %-*s  next step: %s\n", "", r.width, "", plain.Line(fmt.Sprintf(format, args...)))
}

// problem is a line for err and its next step.
func (r *report) problem(v verdict, subject string, err error) {
	r.say(v, subject, "%v", err)
	if step := hint.Person(err); step != "" {
		r.step("%s", step)
	}
}

// doctor looks at all that a tool call needs, by the same settings the MCP server
// would run with. It changes nothing.
func doctor(ctx context.Context, set settings, std streams) error {
	cfg := load(set)
	runtimes, meant, unclear := known(set, cfg.pairings)
	r := &report{w: std.out, width: len("checkpoints")}
	for _, each := range runtimes {
		r.width = max(r.width, len(each.Name))
	}
	r.say(ok, "relay", "%s, %s/%s", version, runtime.GOOS, runtime.GOARCH)
	r.settings(cfg)
	r.folder("downloads", cfg.saveDir)
	r.folder("checkpoints", cfg.checkpointDir)
	r.hosts(set.getenv)
	r.pairings(cfg.pairings, unclear)
	for _, each := range runtimes {
		e := examination{report: r, runtime: each, lives: cfg.pairings, bad: fail}
		if unclear == nil && each.Name != meant.Name {
			e.bad = warn // a call has to name it
		}
		e.run(ctx)
	}
	if r.failed > 0 {
		return fmt.Errorf("%d of these checks failed", r.failed)
	}
	return nil
}

// known is every runtime a call may mean, and which one it means without a name.
func known(set settings, store *pairing.Store) (all []pairing.Runtime, meant pairing.Runtime, unclear error) {
	if store == nil {
		return nil, pairing.Runtime{}, nil // told as a wrong setting
	}
	meant, unclear = pairing.Resolve("", set.get, store)
	all, err := store.List()
	if err != nil {
		unclear = err
	}
	if meant.Name == pairing.EnvName {
		all = append([]pairing.Runtime{meant}, all...)
	}
	return all, meant, unclear
}

func (r *report) settings(cfg config) {
	for _, err := range cfg.problems {
		r.say(fail, "settings", "%v", err)
	}
	if len(cfg.problems) > 0 {
		r.step("mend them in the MCP host's configuration (the relay's env block), or in this shell's environment")
		return
	}
	r.say(ok, "settings", "a call waits %s at most", cfg.hold)
}

// folder tells whether the relay could write there.
func (r *report) folder(subject, dir string) {
	if dir == "" {
		return // told as a wrong setting
	}
	f, err := os.CreateTemp(dir, ".colab-relay-doctor-*")
	if err != nil {
		r.say(fail, subject, "%v", err)
		r.step("make the folder writable, or choose another one (LOCAL_SAVE_DIR, CHECKPOINT_DIR)")
		return
	}
	f.Close()
	os.Remove(f.Name())
	r.say(ok, subject, "%s", dir)
}

// hosts tells which MCP hosts start this relay.
func (r *report) hosts(getenv func(string) string) {
	place, err := placeOf(getenv)
	if err != nil {
		r.say(warn, "host", "%v", err)
		return
	}
	own, _ := os.Executable()
	found := false
	for _, h := range hostconfig.Hosts {
		program, there := hostconfig.Installed(h, place)
		if !there {
			continue
		}
		found = true
		switch {
		case program == own:
			r.say(ok, "host", "%s starts this relay", h.Title)
		case exists(program):
			r.say(warn, "host", "%s starts another program: %s", h.Title, program)
			r.step("`relay install %s`, if this relay is the one to use", h.Name)
		default:
			r.say(fail, "host", "%s is to start %s, which is not there", h.Title, program)
			r.step("`relay install %s`", h.Name)
		}
	}
	if !found {
		r.say(warn, "host", "none that is known here starts the relay")
		r.step("`relay install` lists the hosts; `relay install HOST` writes one's configuration")
	}
}

// exists reports whether a host could find program; one without a folder is looked up
// on a PATH that is the host's own.
func exists(program string) bool {
	if !strings.ContainsAny(program, `/\`) {
		return true
	}
	_, err := os.Stat(program)
	return err == nil
}

// pairings tells about the list itself, and which runtime a call means.
func (r *report) pairings(store *pairing.Store, unclear error) {
	if store == nil {
		return
	}
	switch {
	case errors.Is(unclear, pairing.ErrAmbiguous):
		r.say(warn, "pairings", "%v", unclear)
		r.step("name the runtime in each call, or pair the usual one again as %q", pairing.DefaultName)
	case unclear != nil:
		r.problem(fail, "pairings", unclear)
	}
	info, err := os.Stat(store.Path())
	if err != nil {
		return // none yet
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		r.say(warn, "pairings", "others on this computer can read the secrets in %s", store.Path())
		r.step("chmod 600 %q, and make new secrets if others use this computer", store.Path())
		return
	}
	if unclear == nil {
		r.say(ok, "pairings", "%s", store.Path())
	}
}
