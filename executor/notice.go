package main

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

// notice tells people and programs that start this one how it stands: a few lines on
// the console, and the ready file once kernel and tunnel are up.
type notice struct {
	cfg        config
	instanceID string
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
	return n
}

// line writes one aligned line.
func (n *notice) line(name, value string) { fmt.Fprintf(n.out, "  %-8s %s\n", name, value) }

// local tells the address on this machine.
func (n *notice) local(url string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.localURL = url
	n.line("local", url)
	if where := beyondLoopback(n.cfg.listen); where != "" {
		n.line("note", "plain HTTP on "+where+": requests must be signed, but whoever is on the way can read them")
	}
	if n.cfg.tunnel.kind == tunnelNone {
		n.reachable(url)
	}
}

// beyondLoopback says where other machines can reach the listener, if they can.
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

// public tells the tunnel's address, again when it has changed.
func (n *notice) public(url string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.line("public", url)
	if n.cfg.tunnel.kind == tunnelSSH && strings.HasPrefix(url, "http:") {
		n.line("note", "plain HTTP to the SSH server: requests must be signed, but whoever is on the way can read them")
	}
	n.reachable(url)
}

// reachable tells how to reach the executor. A secret that was given is not shown: who
// gave it has it. The pairing string is no argument of a command, which a shell would
// keep in its history.
func (n *notice) reachable(url string) {
	n.publicURL = url
	n.line("check", "curl -s "+url+contract.PathHealth)
	if n.cfg.generated {
		n.line("pair", "run `relay pair` on the laptop and paste this there:")
		n.line("", n.pairing())
		if n.cfg.tunnel.kind == tunnelNone {
			n.line("note", "this address works on this machine only: there is no tunnel")
		}
	}
	n.tellReady()
}

// kernel tells that code can run.
func (n *notice) kernel(k contract.Kernel) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.line("kernel", fmt.Sprintf("Python %s, ipykernel %s", k.Python, k.IPyKernel))
	n.kernelUp = true
	n.tellReady()
}

// ending tells that the end has begun: it can take seconds.
func (n *notice) ending() { fmt.Fprintln(n.out, "stopping…") }

func (n *notice) pairing() string {
	return auth.Pairing{URL: n.publicURL, Secret: n.cfg.secret}.String()
}

// tellReady writes the ready file when all is up. A file that can't be written is no
// reason to end what works.
func (n *notice) tellReady() {
	if !n.kernelUp || n.localURL == "" || n.publicURL == "" {
		return
	}
	err := n.ready.write(readyInfo{
		URL: n.publicURL, LocalURL: n.localURL, KeyID: n.cfg.secret.KeyID(),
		InstanceID: n.instanceID, PID: os.Getpid(), Pairing: n.pairing(),
	})
	if err != nil {
		n.log.Warn("ready file", "component", "executor", "err", err)
	}
}
