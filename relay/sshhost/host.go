// Package sshhost runs an executor on a machine that this computer reaches by SSH, pairs it, and
// holds the connection, with the system's own ssh: its configuration, keys, agents, jump hosts
// and known hosts apply.
//
// It must not change how ssh checks hosts, put a secret into arguments, or end an executor
// unless asked. Start reading at Host.Run.
package sshhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"colabrelay/relay/environ"
	"colabrelay/relay/pairing"
	"colabrelay/relay/vm"
	"colabrelay/shared/auth"
)

// Config is what a Host needs.
type Config struct {
	Address string   // as for ssh: a name of its configuration, or [user@]host
	Options []string // of ssh
	// Arguments are those of `colab-relay ssh`, for hints: see pairing.Runtime.
	Arguments []string
	Name      string // of the runtime
	Python    string // on the machine; "python3" without a choice
	WorkDir   string // of the kernel, from the home folder
	Stop      string // the command that ends the executor
	Version   string // of this relay

	Store *pairing.Store
	// Program returns the executor for linux/arch.
	Program func(ctx context.Context, arch string) (vm.Program, error)
	Say     func(line string) // what happens
	// Connected is called once the executor has answered over the connection.
	Connected func(r pairing.Runtime)
}

// Errors that callers distinguish.
var (
	// ErrHeld: another colab-relay holds the connection.
	ErrHeld = errors.New("the machine is connected already, by another `colab-relay ssh`")
	// ErrEnded: the executor has ended.
	ErrEnded = errors.New("the executor has ended")
	// ErrLaunch: the executor did not start.
	ErrLaunch = errors.New("the executor did not start")
	// ErrRefused: the machine can't run an executor as it is.
	ErrRefused = errors.New("the machine can't run the executor")
	// ErrName: the name belongs to another runtime.
	ErrName = errors.New("the name is taken")
	// ErrNoSSH: there is no ssh on this computer.
	ErrNoSSH = errors.New("the program ssh is not on PATH")
)

// LoginError is the error of an ssh that could not log in.
type LoginError struct{ Address, Said string }

func (e *LoginError) Error() string {
	return fmt.Sprintf("ssh could not connect to %s: %s", e.Address, e.Said)
}

// Host is a machine.
type Host struct{ cfg Config }

// New returns a Host, or an error if there is no ssh or the address would be an option of it.
func New(cfg Config) (*Host, error) {
	if strings.HasPrefix(cfg.Address, "-") || strings.ContainsAny(cfg.Address, " \t\r\n") || cfg.Address == "" {
		return nil, fmt.Errorf("%q is no address of a machine: use [user@]host, or a name of ssh's configuration", cfg.Address)
	}
	if _, err := exec.LookPath("ssh"); err != nil {
		return nil, fmt.Errorf("%w: install OpenSSH's client (%s)", ErrNoSSH, installs())
	}
	if err := pairing.CheckName(cfg.Name); err != nil {
		return nil, fmt.Errorf("%w; choose a name with --name", err)
	}
	return &Host{cfg}, nil
}

// installs says how to install ssh on this computer.
func installs() string {
	switch runtime.GOOS {
	case "windows":
		return "Settings, System, Optional features, OpenSSH Client"
	case "darwin":
		return "macOS has it in /usr/bin"
	}
	return "on Debian and Ubuntu: sudo apt install openssh-client"
}

// ssh returns one run of ssh, which ends with ctx. Options of the person come first: ssh uses
// the first value. X11 and agent are not forwarded, for nothing there would use them. The
// person's configuration of ssh may name any variable, and programs that need some (ProxyCommand),
// so that ssh gets all but the relay's settings.
func (h *Host) ssh(ctx context.Context, own []string, command ...string) *exec.Cmd {
	args := append([]string{}, h.cfg.Options...)
	args = append(args, own...)
	args = append(args, "-x", "-a", "-o", "RemoteCommand=none", "-o", "RequestTTY=no",
		"-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3", "--", h.cfg.Address)
	cmd := exec.CommandContext(ctx, "ssh", append(args, command...)...)
	cmd.Env, cmd.WaitDelay = environ.WithoutSettings(os.Environ()), endTime
	return cmd
}

// known returns the runtime of an earlier call. The error is ErrName if the name is another
// runtime's, and pairing.ErrNotPaired if there is none.
func (h *Host) known() (pairing.Runtime, error) {
	r, err := h.cfg.Store.Get(h.cfg.Name)
	switch {
	case err != nil:
		return r, err
	case r.SSHHost == h.cfg.Address:
		return r, nil
	case r.SSHHost != "":
		return r, fmt.Errorf("%w: runtime %q is the machine %s; choose another name with --name, or remove that pairing with `colab-relay unpair %s`", ErrName, r.Name, r.SSHHost, r.Name)
	}
	return r, fmt.Errorf("%w: runtime %q was paired in another way; choose another name with --name, or remove that pairing with `colab-relay unpair %s`", ErrName, r.Name, r.Name)
}

// runtime returns the runtime of an earlier call, or a new one, which is not stored yet.
func (h *Host) runtime() (r pairing.Runtime, isNew bool, err error) {
	r, err = h.known()
	if !errors.Is(err, pairing.ErrNotPaired) {
		r.SSHArguments = h.cfg.Arguments
		return r, false, err
	}
	r = pairing.Runtime{Name: h.cfg.Name, Secret: auth.GenerateSecret(), SSHHost: h.cfg.Address, SSHArguments: h.cfg.Arguments}
	r.URL, err = freeURL()
	return r, true, err
}

// ident names the executor's folder on the machine. Two computers, or two names, have two.
func ident(r pairing.Runtime) string { return "ssh-" + r.Secret.KeyID() }

// Stop ends the executor. It returns whether it ran, and the folder that stays there.
func (h *Host) Stop(ctx context.Context) (ran bool, folder string, err error) {
	r, err := h.known()
	if err != nil {
		return false, "", err
	}
	s, err := h.open(ctx)
	if err != nil {
		return false, "", err
	}
	defer s.close()
	var report struct {
		Running bool   `json:"running"`
		Folder  string `json:"folder"`
	}
	err = s.call(ctx, &report, nil, "stop", ident(r))
	return report.Running, report.Folder, err
}
