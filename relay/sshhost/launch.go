package sshhost

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/vm"
)

const (
	// pollWait is how long one call waits on the machine for the executor.
	pollWait = 10 * time.Second
	// startLimit bounds the time from the executor's start until it is ready: a cold disk, or
	// a home folder in a network, takes a minute.
	startLimit = 3 * time.Minute
)

// machine is what serve.py's look says.
type machine struct {
	Folder    string `json:"folder"`
	Machine   string `json:"machine"`
	Python    string `json:"python"`
	Version   string `json:"version"`
	IPyKernel bool   `json:"ipykernel"`
	Managed   bool   `json:"managed"` // its pip refuses to install packages
	Running   bool   `json:"running"`
	Ready     *ready `json:"ready"`
}

type ready struct {
	LocalURL string `json:"local_url"`
}

// launched is what prepare and poll say.
type launched struct {
	SHA256  string `json:"sha256"`
	Running bool   `json:"running"`
	Ready   *ready `json:"ready"`
	Log     string `json:"log"`
}

// find returns the port of the machine's executor, or ErrEnded.
func (h *Host) find(ctx context.Context, r pairing.Runtime) (port int, err error) {
	s, err := h.open(ctx)
	if err != nil {
		return 0, err
	}
	defer s.close()
	var m machine
	if err := s.call(ctx, &m, nil, "look", ident(r)); err != nil {
		return 0, h.explained(err)
	}
	if !m.Running {
		return 0, ErrEnded
	}
	return s.await(ctx, r)
}

// launch returns the port of the machine's executor, which it starts if it does not run.
func (h *Host) launch(ctx context.Context, r pairing.Runtime, isNew bool) (port int, err error) {
	s, err := h.open(ctx)
	if err != nil {
		return 0, err
	}
	defer s.close()
	var m machine
	if err := s.call(ctx, &m, nil, "look", ident(r)); err != nil {
		return 0, h.explained(err)
	}
	if m.Running {
		h.cfg.Say("The executor on " + h.cfg.Address + " has been running since an earlier call; its variables are kept.")
		return s.await(ctx, r)
	}
	sha256, err := h.upload(ctx, s, m, r)
	if err != nil {
		return 0, err
	}
	if isNew { // before the executor has the secret, so that it can always be found again
		taken := func(pairing.Runtime) error {
			return fmt.Errorf("%w: runtime %q was just paired by another program", ErrName, r.Name)
		}
		if _, err := h.cfg.Store.PutIf(r, taken); err != nil {
			return 0, err
		}
	}
	h.cfg.Say("starting the executor ...")
	err = h.explained(s.call(ctx, &struct{}{}, nil, "start", ident(r), sha256, h.cfg.WorkDir, r.Secret.Reveal()))
	if err == nil {
		port, err = s.await(ctx, r)
	}
	if failed := (*remoteError)(nil); isNew && (errors.Is(err, ErrLaunch) || errors.As(err, &failed)) { // nothing runs there
		_ = h.cfg.Store.RemoveIf(r.Name, func(now pairing.Runtime) error { return sameSecret(now, r) })
	}
	return port, err
}

// upload brings the executor onto the machine, unless it is there. It returns its digest.
func (h *Host) upload(ctx context.Context, s *session, m machine, r pairing.Runtime) (sha256 string, err error) {
	arch := vm.Architecture(m.Machine)
	switch {
	case arch == "":
		return "", fmt.Errorf("%w: its processor is %q, and there are executors for x86_64 and aarch64", ErrRefused, plain.Line(m.Machine))
	case !m.IPyKernel:
		return "", h.noKernel(m)
	}
	program, err := h.cfg.Program(ctx, arch)
	if err != nil {
		return "", err
	}
	var there launched
	if err := s.call(ctx, &there, nil, "prepare", ident(r)); err != nil {
		return "", h.explained(err)
	}
	if there.SHA256 == program.SHA256 {
		return program.SHA256, nil
	}
	content, err := program.Content(ctx)
	if err != nil {
		return "", err
	}
	h.cfg.Say(fmt.Sprintf("copying the executor to %s, %d MB ...", h.cfg.Address, (len(content)+1e6-1)/1e6))
	if err := s.call(ctx, &struct{}{}, content, "upload", ident(r), len(content)); err != nil {
		return "", h.explained(err)
	}
	return program.SHA256, nil
}

// noKernel says how to install ipykernel on the machine.
func (h *Host) noKernel(m machine) error {
	python := plain.Line(m.Python)
	missing := fmt.Errorf("%w: its Python %s (%s) has no ipykernel", ErrRefused, plain.Line(m.Version), python)
	program := plain.POSIXWord(python) // the machine says what it is, and a person copies the command
	if !m.Managed {
		return fmt.Errorf("%w. Install it with `%s`, or name another interpreter of that machine with --python PATH",
			missing, h.byHand(program+" -m pip install ipykernel"))
	}
	return fmt.Errorf("%w, and the system allows no packages there. Make an environment with `%s`, then add --python '~/colab-relay-python/bin/python'",
		missing, h.byHand(program+" -m venv ~/colab-relay-python && ~/colab-relay-python/bin/pip install ipykernel"))
}

// byHand is what a person types here to run a command line on the machine.
func (h *Host) byHand(command string) string {
	words := append([]string{"ssh"}, h.cfg.Options...)
	return strings.Join(plain.ShellWords(append(words, "--", h.cfg.Address, command)), " ")
}

// explained adds what to do to an error of the machine.
func (h *Host) explained(err error) error {
	failed, ok := errors.AsType[*remoteError](err)
	if !ok {
		return err
	}
	todo := ""
	switch failed.Name {
	case "old":
		return fmt.Errorf("%w: its Python is %s, and 3.8 or newer is needed; name another interpreter of that machine with --python PATH", ErrRefused, failed.Text)
	case "ENOSPC", "EDQUOT":
		todo = "; free some space in its home folder"
	case "EACCES", "EPERM", "EROFS":
		todo = "; its home folder must be writable for this user, and programs must be allowed to run there"
	case "ENOTDIR":
		todo = "; name a folder of that machine with --workdir"
	}
	return fmt.Errorf("on %s: %w%s", h.cfg.Address, failed, todo)
}

// await waits until the executor is ready, and returns its port.
func (s *session) await(ctx context.Context, r pairing.Runtime) (port int, err error) {
	for deadline := time.Now().Add(startLimit); ; {
		var e launched
		if err := s.call(ctx, &e, nil, "poll", ident(r), pollWait.Seconds()); err != nil {
			return 0, err
		}
		log := strings.ReplaceAll(e.Log, r.Secret.Reveal(), "[secret]")
		switch {
		case e.Ready != nil && e.Running:
			return vm.LocalPort(e.Ready.LocalURL)
		case !e.Running:
			return 0, fmt.Errorf("%w; its last output: %s", ErrLaunch, plain.Line(log))
		case time.Now().After(deadline):
			return 0, fmt.Errorf("the executor was not ready after %s; its last output: %s", startLimit, plain.Line(log))
		}
	}
}

// freeURL returns an address of this computer with a port that is free now. It is below the
// ports of outgoing connections, of which one could take it while the machine is away.
func freeURL() (string, error) {
	const first, ports, tries = 20_000, 10_000, 50
	for range tries {
		if address := fmt.Sprintf("http://127.0.0.1:%d", first+rand.IntN(ports)); free(address) {
			return address, nil
		}
	}
	return "", fmt.Errorf("no port of this computer from %d to %d seems to be free", first, first+ports-1)
}

// free reports whether nothing listens at an address of freeURL.
func free(address string) bool {
	l, err := net.Listen("tcp", strings.TrimPrefix(address, "http://"))
	if err == nil {
		l.Close()
	}
	return err == nil
}

// forwarding is the argument of ssh's -L.
func forwarding(r pairing.Runtime, port int) string {
	return strings.TrimPrefix(r.URL, "http://") + ":127.0.0.1:" + strconv.Itoa(port)
}

func sameSecret(a, b pairing.Runtime) error {
	if a.Secret.Equal(b.Secret) {
		return nil
	}
	return fmt.Errorf("%w: runtime %q was paired anew by another program", ErrName, b.Name)
}
