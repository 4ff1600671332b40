package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"colabrelay/executor/audit"
	"colabrelay/executor/kernel"
	"colabrelay/executor/probe"
	"colabrelay/executor/statedir"
	"colabrelay/executor/tunnel"
	"colabrelay/shared/contract"
)

// verdict begins each line of the doctor.
type verdict string

const (
	ok   verdict = "ok"
	warn verdict = "warn" // works, with a limitation
	fail verdict = "fail" // the executor would not work
)

const (
	lowDiskGB          = 2
	tunnelCheckTimeout = 10 * time.Second
)

// report prints findings and records whether one of them is a failure.
type report struct {
	w      io.Writer
	failed bool
}

func (r *report) say(v verdict, what, format string, args ...any) {
	r.failed = r.failed || v == fail
	fmt.Fprintf(r.w, "%-5s %-9s %s\n", v, what, fmt.Sprintf(format, args...))
}

// doctor reports what this machine has and lacks, for the settings that the executor
// itself would run with. It starts nothing. It returns the exit code.
func doctor(ctx context.Context, cfg config, stdout io.Writer) int {
	r := &report{w: stdout}
	r.kernelSide(ctx, cfg)
	r.workdir(cfg.workDir)
	r.stateDir(cfg.stateDir)
	r.audit(cfg.audit)
	if cfg.user != nil { // the settings have checked the rest
		r.say(ok, "user", "the kernel runs as %s and can't read the executor's memory and files", cfg.user)
	}
	r.listen(ctx, cfg.listen)
	r.tunnel(ctx, cfg.tunnel)
	if r.failed {
		return 1
	}
	return 0
}

// kernelSide reports what the kernel's Python finds, which runs as the kernel's user.
func (r *report) kernelSide(ctx context.Context, cfg config) {
	environ := kernel.Environ(cfg.user.Environ(os.Environ(), cfg.workDir), cfg.workDir)
	python, err := kernel.Find(ctx, cfg.user, cfg.python, environ)
	if err != nil {
		r.say(fail, "python", "%v", err)
	} else {
		r.say(ok, "python", "%s %s, ipykernel %s, IPython %s", python.Path, python.Version, python.IPyKernel, python.IPython)
	}
	found, err := probe.New(probe.Config{WorkDir: cfg.workDir, Python: python.Path, User: cfg.user, Started: time.Now(), Environ: environ}).Probe(ctx)
	if err != nil {
		r.say(warn, "machine", "%v", err)
		return
	}
	r.say(ok, "platform", "%s, %s, %s", found.Platform.Name, found.Platform.OS, found.Platform.Architecture)
	r.memory(found.Compute)
	r.gpu(found)
	r.disks(found.Storage)
}

func (r *report) memory(c contract.Compute) {
	v := ok
	if c.MemoryAvailableGB < minMemoryGB {
		v = fail // the executor would refuse every run
	}
	cpus := "CPUs"
	if c.CPUCount == 1 {
		cpus = "CPU"
	}
	r.say(v, "memory", "%.1f of %.1f GB free, %d %s", c.MemoryAvailableGB, c.MemoryTotalGB, c.CPUCount, cpus)
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

// workdir reports whether the kernel could write there.
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

// stateDir reports whether another executor uses the state folder.
func (r *report) stateDir(dir string) {
	if statedir.InUse(dir) {
		r.say(fail, "state", "another executor uses %s: stop it, or choose another folder with --state-dir", dir)
		return
	}
	if _, err := os.Stat(dir); err != nil {
		dir += ", which the executor will create"
	}
	r.say(ok, "state", "%s", dir)
}

// audit reports whether the audit log could be written.
func (r *report) audit(c auditConfig) {
	if c.path == "" {
		return
	}
	if err := audit.Check(c.path); err != nil {
		r.say(fail, "audit", "%q: %v", c.path, err)
		return
	}
	what := "requests and executions"
	if c.code {
		what += " with their code"
	}
	r.say(ok, "audit", "%s in %s", what, c.path)
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
		r.say(ok, "visitors", "only from %v", c.allow)
	}
}
