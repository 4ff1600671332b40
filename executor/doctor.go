package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"colabrelay/executor/kernel"
	"colabrelay/executor/probe"
	"colabrelay/executor/tunnel"
	"colabrelay/shared/contract"
)

// verdict begins each line of the doctor.
type verdict string

const (
	ok   verdict = "ok"
	warn verdict = "warn" // works, with a loss
	fail verdict = "fail" // the executor would not work
)

const (
	lowDiskGB          = 2
	tunnelCheckTimeout = 10 * time.Second
)

// report prints findings and remembers whether one is a failure.
type report struct {
	w       io.Writer
	environ []string // what the executor would start Python with
	failed  bool
}

func (r *report) say(v verdict, what, format string, args ...any) {
	r.failed = r.failed || v == fail
	fmt.Fprintf(r.w, "%-5s %-9s %s\n", v, what, fmt.Sprintf(format, args...))
}

// doctor says what this machine has and lacks, by the same flags and environment the
// executor itself would run with. It starts nothing.
func (r *report) doctor(ctx context.Context, args []string, getenv func(string) string, stderr io.Writer) int {
	cfg, err := parseConfig(args, getenv, r.w)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		complain(stderr, err)
		return 2
	}
	python, err := kernel.Find(ctx, cfg.python, kernel.Environ(r.environ, cfg.workDir))
	if err != nil {
		r.say(fail, "python", "%v", err)
	} else {
		r.say(ok, "python", "%s %s, ipykernel %s, IPython %s", python.Path, python.Version, python.IPyKernel, python.IPython)
	}
	r.traps(getenv("HOME"))
	found, err := probe.New(probe.Config{WorkDir: cfg.workDir, Python: python.Path, Started: time.Now(), Getenv: getenv}).Probe(ctx)
	if err != nil {
		r.say(warn, "machine", "%v", err)
	} else {
		r.say(ok, "platform", "%s, %s, %s", found.Platform.Name, found.Platform.OS, found.Platform.Architecture)
		r.memory(found.Compute)
		r.gpu(found)
		r.disks(found.Storage)
	}
	r.workdir(cfg.workDir)
	r.stateDir(cfg.stateDir)
	r.listen(ctx, cfg.listen)
	r.tunnel(ctx, cfg.tunnel)
	if r.failed {
		return 1
	}
	return 0
}

// traps tells of IPython configuration that replaces the kernel's class, as Colab's
// does. The executor overrides it; who starts a kernel by hand should know.
func (r *report) traps(home string) {
	dirs := []string{"/etc/ipython", "/usr/local/etc/ipython", filepath.Join(home, ".ipython", "profile_default")}
	trapped := false
	for _, dir := range dirs {
		for _, name := range []string{"ipython_config.py", "ipython_kernel_config.py", "ipython_config.json", "ipython_kernel_config.json"} {
			file := filepath.Join(dir, name)
			raw, err := os.ReadFile(file)
			if err == nil && (bytes.Contains(raw, []byte("kernel_class")) || bytes.Contains(raw, []byte("google.colab"))) {
				trapped = true
				r.say(ok, "config", "%s sets a kernel class or extension; the executor overrides it", file)
			}
		}
	}
	if !trapped {
		r.say(ok, "config", "no IPython configuration in the way")
	}
}

func (r *report) memory(c contract.Compute) {
	v := ok
	if c.MemoryAvailableGB < minMemoryGB {
		v = fail // every run would be refused
	}
	r.say(v, "memory", "%.1f of %.1f GB free, %d CPUs", c.MemoryAvailableGB, c.MemoryTotalGB, c.CPUCount)
}

func (r *report) gpu(p contract.Probe) {
	switch {
	case p.TPU.Available:
		r.say(ok, "tpu", "%s", strings.Join(p.TPU.Devices, ", "))
	case !p.GPU.Available:
		r.say(ok, "gpu", "none")
	default:
		for _, d := range p.GPU.Devices {
			r.say(ok, "gpu", "%s, driver %s", d.Name, cmp.Or(p.GPU.Driver, "unknown"))
		}
	}
}

func (r *report) disks(disks []contract.Disk) {
	for _, d := range disks {
		v := ok
		if d.FreeGB < lowDiskGB {
			v = warn
		}
		r.say(v, "disk", "%s: %.1f of %.1f GB free", d.Path, d.FreeGB, d.TotalGB)
	}
}

// workdir tells whether the kernel could write there.
func (r *report) workdir(dir string) {
	f, err := os.CreateTemp(dir, ".colab-relay-doctor-*")
	if err != nil {
		r.say(fail, "workdir", "%v", err)
		return
	}
	f.Close()
	os.Remove(f.Name())
	r.say(ok, "workdir", "%s", dir)
}

// stateDir tells whether another executor has the state dir. One that is not there yet
// is made at the start.
func (r *report) stateDir(dir string) {
	path := filepath.Join(dir, lockFile)
	if _, err := os.Stat(path); err != nil {
		r.say(ok, "state", "%s, to be made", dir)
		return
	}
	lock := flock.New(path)
	defer lock.Close()
	if free, err := lock.TryLock(); err != nil || !free {
		r.say(fail, "state", "%s is used by another executor: end that one, or choose another with --state-dir", dir)
		return
	}
	r.say(ok, "state", "%s", dir)
}

// listen reports whether the address is free.
func (r *report) listen(ctx context.Context, address string) {
	found, err := tunnel.NewLocal(address).Check(ctx)
	if err != nil {
		r.say(fail, "listen", "%v", err)
		return
	}
	r.say(ok, "listen", "%s", found)
}

// tunnel reports whether the chosen tunnel could be opened.
func (r *report) tunnel(ctx context.Context, c tunnelConfig) {
	t, err := c.newTunnel(nil)
	if t == nil && err == nil {
		r.say(warn, "tunnel", "none: only this machine can reach the executor; set %s, or use --tunnel ssh or --tunnel cloudflared", envNgrokToken)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tunnelCheckTimeout)
	defer cancel()
	found := ""
	if err == nil {
		found, err = t.Check(ctx)
	}
	if err != nil {
		r.say(fail, "tunnel", "%v", err)
		return
	}
	r.say(ok, "tunnel", "%s", found)
	if len(c.allow) > 0 {
		r.say(ok, "visitors", "only from %s", joined(c.allow))
	}
}

func joined(allowed []netip.Prefix) string {
	var texts []string
	for _, prefix := range allowed {
		texts = append(texts, prefix.String())
	}
	return strings.Join(texts, ", ")
}
