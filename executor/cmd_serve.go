package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"colabrelay/executor/kernel"
	"colabrelay/executor/logfile"
	"colabrelay/executor/statedir"
	"colabrelay/shared/auth"
	"colabrelay/shared/bounded"
	"colabrelay/shared/console"
	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
)

// memoryGoal is how many bytes the executor takes before Go collects garbage more often instead
// of letting the heap double. Its bounds together are below it: above all, the share of
// executor/jupyter for big messages, 280 MiB.
const memoryGoal = 450 << 20

// serve runs the executor until a signal or a fault ends it.
// It returns its error after it has shown it, below everything else.
func serve(ctx context.Context, cfg config, environ []string, stdout, stderr io.Writer) error {
	if !slices.ContainsFunc(environ, func(entry string) bool { return strings.HasPrefix(entry, "GOMEMLIMIT=") }) {
		debug.SetMemoryLimit(memoryGoal)
	}
	out, errs := console.New(stdout), console.New(stderr)
	err := serveOn(ctx, cfg, environ, out, errs)
	endConsole(out, errs, err)
	return err
}

// endConsole shows what is still to be shown, and then the fault.
func endConsole(out, errs *console.Writer, fault error) {
	out.Close()
	if fault != nil {
		complain(errs, fault)
	}
	errs.Close()
}

// serveOn is serve without the end of the console.
func serveOn(ctx context.Context, cfg config, environ []string, out, errs *console.Writer) error {
	started := time.Now()
	notPrivate := errors.Join(keepPrivate(), keepDescriptors())
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	second := watchSignals(cfg.inCell, stop)

	state, err := statedir.Open(cfg.stateDir)
	if err != nil {
		return err
	}
	defer state.Close()
	file, damage, err := openLog(state.Path("executor.log"))
	if err != nil {
		return err
	}
	defer file.Close()

	cfg.user = cfg.user.For(state.Place())
	environ = cfg.user.Environ(environ, cfg.workDir)
	log := newLog(file, errs)
	if notPrivate != nil {
		log.Warn("the kernel's code can read the executor's secrets", "component", "executor", "err", notPrivate)
	}
	adoptState(state, damage, log)
	untilEnd, end := context.WithCancel(context.WithoutCancel(ctx)) // includes the shutdown
	defer end()
	if !cfg.inCell {
		watchHangUp(untilEnd, log, out, errs)
	}
	records, err := cfg.audit.open(cfg.secret.KeyID(), state.InstanceID(), log)
	if err != nil {
		return err
	}
	notice := newNotice(cfg, state.InstanceID(), out, log)
	notice.restarted = hasRun(state)
	defer notice.ready.remove()
	x := &executor{cfg: cfg, state: state, audit: records, environ: environ, started: started, start: rand.Text(), log: log, notice: notice}
	done := make(chan error, 1)
	go func() { done <- x.run(ctx) }()
	select {
	case err = <-done:
	case <-second:
		err = errors.New("stopped immediately after a second signal")
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "stopped; past executions are kept in", cfg.stateDir)
	return nil
}

// adoptState logs what is unusual about the state folder. The kernel that the record in a copied
// folder names belongs to another executor, so it is left alone.
func adoptState(state *statedir.Dir, logDamage error, log *slog.Logger) {
	for _, damage := range []error{state.Damage(), logDamage} {
		if damage != nil {
			log.Warn("a damaged file of the state folder was set aside", "component", "executor", "err", damage)
		}
	}
	if !state.Copied() {
		return
	}
	folder := state.Path("")
	log.Warn("the state folder is a copy of another executor's: this executor starts with a new instance_id, and relays treat it as a new VM", "component", "executor", "state_dir", folder)
	if err := kernel.ForgetLeftover(folder); err != nil {
		log.Warn("the copied record of the other executor's kernel can't be deleted; delete kernel.json in the state folder", "component", "executor", "err", err)
	}
}

// openLog opens the executor's log, up to 4 MiB with the file before it as PATH.1. What has its
// name and is not a file is kept under another one, of which damage tells.
func openLog(path string) (file *logfile.File, damage, err error) {
	cfg := logfile.Config{
		Path: path, MaxBytes: 4 << 20, Old: 1, Omitted: omittedLines,
		Open: func() (logfile.Disk, error) { return bounded.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR) },
	}
	if file, err = logfile.Open(cfg); errors.Is(err, bounded.ErrNotFile) {
		kept, moveErr := keep.Aside(path)
		if moveErr != nil {
			return nil, nil, moveErr
		}
		damage = fmt.Errorf("open the log: %w; it is kept as %q, and a new log was started", err, kept)
		file, err = logfile.Open(cfg)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("open the log: %w", err)
	}
	return file, damage, nil
}

// omittedLines is the line of the executor's log for lines that are not in it.
func omittedLines(count int, since time.Time, cause error) []byte {
	var line bytes.Buffer
	slog.New(slog.NewJSONHandler(&line, nil)).Warn("lines of this log are missing", "component", "executor", "count", count, "since", since, "err", cause)
	return line.Bytes()
}

// newLog logs everything to the file, where a person can later look up the
// request_id of an internal error, and warnings to the console as well: in a
// notebook cell the console is all that a person sees, and a line for every
// request would be too much there. The file is bounded, but what the console prints is not:
// there, repeated warnings are left out and counted.
func newLog(file, errs io.Writer) *slog.Logger {
	return slog.New(slog.NewMultiHandler(
		slog.NewJSONHandler(file, &slog.HandlerOptions{Level: slog.LevelInfo}),
		console.Sparse(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: slog.LevelWarn})),
	))
}

// notice informs the people and programs that start this one: a few lines on the
// console, and the ready file once kernel and tunnel are up.
type notice struct {
	cfg        config
	instanceID string
	restarted  bool // an earlier start on this state folder may have been paired
	out        io.Writer
	log        *slog.Logger
	ready      readyFile

	mu        sync.Mutex
	localURL  string
	publicURL string
	kernelUp  bool
}

func newNotice(cfg config, instanceID string, out io.Writer, log *slog.Logger) *notice {
	fmt.Fprintf(out, "colab-relay executor %s\n", version)
	n := &notice{cfg: cfg, instanceID: instanceID, out: out, log: log, ready: readyFile{path: cfg.readyFile}}
	n.line("state", cfg.stateDir)
	if cfg.user != nil {
		n.line("user", cfg.user.Name+" runs the kernel")
	}
	return n
}

// hasRun reports whether an earlier start of this executor came as far as the kernel.
func hasRun(state *statedir.Dir) bool {
	_, err := os.Stat(state.Path("executions"))
	return err == nil && !state.Copied()
}

// line writes one aligned line.
func (n *notice) line(name, value string) { fmt.Fprintf(n.out, "  %-8s %s\n", name, value) }

// local reports the address on this machine.
func (n *notice) local(url string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.localURL = url
	n.line("local", url)
	if where := beyondLoopback(n.cfg.listen); where != "" {
		n.line("note", "plain HTTP on "+where+": content is encrypted; anyone on the network path can read /health, sizes and times")
	}
	if n.cfg.tunnel.kind == tunnelNone {
		n.reachable(url)
	}
}

// beyondLoopback returns where other machines can reach the listener, or "".
func beyondLoopback(listen string) string {
	host, _, err := net.SplitHostPort(listen)
	addr, notIP := netip.ParseAddr(host)
	switch {
	case err != nil || host == "localhost" || notIP == nil && addr.IsLoopback():
		return ""
	case host == "" || notIP == nil && addr.IsUnspecified():
		return "every network interface of this machine"
	}
	return host
}

// public reports the tunnel's address, and again whenever it has changed.
func (n *notice) public(url string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.line("public", url)
	if n.cfg.tunnel.kind == tunnelSSH && strings.HasPrefix(url, "http:") {
		n.line("note", "plain HTTP to the SSH server: content is encrypted; anyone on the network path can read /health, sizes and times")
	}
	n.reachable(url)
}

// reachable says how to reach the executor.
func (n *notice) reachable(url string) {
	n.publicURL = url
	n.line("check", "curl -s "+url+contract.PathHealth)
	if n.kernelUp {
		n.pair()
	}
	n.writeReady()
}

// pair shows the pairing string once kernel and tunnel are up: before, a person would paste a
// line that leads nowhere if the start fails. It does not show a secret that was given: the
// person already has it. The string is not printed as a command's argument, because a shell
// would keep that in its history.
func (n *notice) pair() {
	if !n.cfg.generated {
		return
	}
	if n.restarted {
		n.line("note", "this start has a new secret, so an earlier pairing with this executor no longer works: pair again")
		n.line("", "To keep one secret, run `colab-relay init` on the laptop and put the secret that it prints into a file")
		n.line("", "outside the state folder. Set "+envSecretFile+" to the path of that file before you start the")
		n.line("", "executor. On Colab, store the secret in Secrets as "+envSecret+" instead.")
	}
	n.line("pair", "run `colab-relay pair` on the laptop and paste this line:")
	n.line("", n.pairing())
	if n.cfg.tunnel.kind == tunnelNone {
		n.line("note", "this address works on this machine only, because there is no tunnel")
		if !n.cfg.tunnel.asked {
			n.line("", envNgrokToken+" is not set: to get a public address, set it, or choose --tunnel ssh or --tunnel cloudflared")
		}
	}
}

// kernel reports that code can run.
func (n *notice) kernel(k contract.Kernel) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.line("kernel", fmt.Sprintf("Python %s, ipykernel %s", k.Python, k.IPyKernel))
	n.kernelUp = true
	if n.publicURL != "" {
		n.pair()
	}
	n.writeReady()
}

// ending reports that the shutdown has started; it can take seconds.
func (n *notice) ending() { fmt.Fprintln(n.out, "stopping…") }

func (n *notice) pairing() string {
	return auth.Pairing{URL: n.publicURL, Secret: n.cfg.secret}.String()
}

// writeReady writes the ready file when everything is up. If it can't be written, the
// executor continues.
func (n *notice) writeReady() {
	if !n.kernelUp || n.localURL == "" || n.publicURL == "" {
		return
	}
	err := n.ready.write(readyInfo{
		URL: n.publicURL, LocalURL: n.localURL, KeyID: n.cfg.secret.KeyID(),
		InstanceID: n.instanceID, PID: os.Getpid(), Pairing: n.pairing(),
	})
	if err != nil {
		n.log.Warn("the ready file can't be written", "component", "executor", "err", err)
	}
	if n.cfg.enroll.ready != nil {
		n.cfg.enroll.ready(n.publicURL, n.instanceID)
	}
}

// readyInfo is the content of --ready-file. Pairing holds the secret.
type readyInfo struct {
	URL        string `json:"url"`
	LocalURL   string `json:"local_url"`
	KeyID      string `json:"key_id"`
	InstanceID string `json:"instance_id"`
	PID        int    `json:"pid"`
	Pairing    string `json:"pairing"`
}

// readyFile shows other programs that the executor is ready. Its zero value, without
// a path, does nothing.
type readyFile struct {
	path string

	mu      sync.Mutex
	written bool
	removed bool
}

// write creates or replaces the file atomically.
func (f *readyFile) write(info readyInfo) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.path == "" || f.removed {
		return nil
	}
	if _, err := os.Stat(f.path); f.written && errors.Is(err, fs.ErrNotExist) {
		return nil // its reader removed it because it holds the secret
	}
	err := keep.WriteJSON(f.path, info)
	f.written = f.written || err == nil
	return err
}

// remove removes the file if this executor wrote it. Later writes do nothing.
func (f *readyFile) remove() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.written {
		os.Remove(f.path)
	}
	f.removed = true
}
