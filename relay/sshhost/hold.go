package sshhost

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"slices"
	"strings"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/pairing"
	"colabrelay/shared/contract"
)

const (
	firstDelay = time.Second
	maxDelay   = time.Minute
	// steady is how long a connection must have lasted before the delays begin anew.
	steady = 30 * time.Second
	// checkTime is the time between two tries of an open connection, and answerTime bounds one.
	checkTime  = 20 * time.Second
	answerTime = 10 * time.Second
	// bindTime is the pace at which a new ssh is asked for its port. It binds it after the
	// login, for which a person may have to type a password: that has no limit.
	bindTime = 50 * time.Millisecond
)

// errSilent: ssh is connected, but no executor answers through it.
var errSilent = errors.New("ssh is connected, but the executor does not answer through it")

// link is an ssh that forwards a port of this computer to the executor.
type link struct {
	errs  *lines
	ended chan struct{}
	stop  context.CancelFunc
	since time.Time
}

func (l *link) close() {
	l.stop()
	<-l.ended
}

// Run starts the executor if it does not run, and holds the connection to it until ctx ends.
// The executor goes on. The error is ErrHeld if another program holds the connection, and
// ErrEnded if the executor has ended meanwhile.
func (h *Host) Run(ctx context.Context) error {
	r, isNew, err := h.runtime()
	if err != nil {
		return err
	}
	if !isNew && !free(r.URL) {
		if _, err := answers(ctx, r); err == nil {
			return ErrHeld
		}
	}
	k := &keeper{Host: h, r: r, delay: firstDelay}
	if k.port, err = h.launch(ctx, r, isNew); err != nil {
		return err
	}
	if err := k.dial(ctx, true); err != nil {
		if errors.Is(err, errSilent) {
			return fmt.Errorf("%w: its SSH server must allow port forwarding (AllowTcpForwarding)", err)
		}
		return err
	}
	if err := k.remember(); err != nil {
		h.cfg.Say(fmt.Sprintf("note: the options of this command could not be stored, and later hints don't show them: %v", err))
	}
	h.cfg.Connected(k.r)
	if k.version != h.cfg.Version {
		h.cfg.Say(fmt.Sprintf("note: the executor is of release %s, and this relay of %s. `%s` ends it and its kernel; the next start uses this relay's.", k.version, h.cfg.Version, h.cfg.Stop))
	}
	return k.hold(ctx)
}

// keeper holds the connection to a running executor.
type keeper struct {
	*Host
	r       pairing.Runtime
	port    int // of the executor
	version string
	link    *link
	delay   time.Duration // before the next attempt to connect
}

func (k *keeper) hold(ctx context.Context) error {
	for {
		k.watch(ctx)
		k.link.close()
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(k.link.since) > steady {
			k.delay = firstDelay
		}
		if err := k.reconnect(ctx); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// watch returns when the connection is lost or ctx has ended.
func (k *keeper) watch(ctx context.Context) {
	check := time.NewTicker(checkTime)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.link.ended:
			return
		case <-check.C:
			if _, err := answers(ctx, k.r); err != nil {
				return
			}
		}
	}
}

// reconnect tries until the connection is back or ctx has ended. It says so once.
func (k *keeper) reconnect(ctx context.Context) error {
	told := false
	for {
		select { // Ctrl-C ends ssh too, so this also waits for the end of ctx
		case <-time.After(k.delay/2 + rand.N(k.delay/2+1)):
		case <-ctx.Done():
			return nil
		}
		k.delay = min(2*k.delay, maxDelay)
		err := k.dial(ctx, false)
		if errors.Is(err, errSilent) {
			var at int
			if at, err = k.find(ctx, k.r); err == nil {
				k.port, err = at, errSilent
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			k.cfg.Say("The connection to " + k.cfg.Address + " was lost and is back.")
			return nil
		case errors.Is(err, ErrEnded), errors.Is(err, ErrHeld):
			return err
		case !told:
			k.cfg.Say(fmt.Sprintf("The connection to %s is lost (%v). Trying again until it is back ...", k.cfg.Address, err))
			told = true
		}
	}
}

// dial connects once, and sets link. If another program has taken the port of this computer,
// it takes another one and changes the pairing.
func (k *keeper) dial(ctx context.Context, show bool) error {
	if !free(k.r.URL) {
		if _, err := answers(ctx, k.r); err == nil {
			return ErrHeld
		}
		if err := k.move(); err != nil {
			return err
		}
	}
	own := []string{"-N", "-T", "-S", "none", "-o", "ControlMaster=no", "-o", "ExitOnForwardFailure=no", "-L", forwarding(k.r, k.port)}
	ctx, stop := context.WithCancel(ctx)
	l := &link{errs: &lines{}, ended: make(chan struct{}), stop: stop, since: time.Now()}
	if show {
		l.errs.show = k.cfg.Say
	}
	cmd := k.ssh(ctx, own)
	cmd.Stderr = l.errs
	if err := cmd.Start(); err != nil {
		stop()
		return fmt.Errorf("start ssh: %w", err)
	}
	go l.wait(cmd)
	health, err := k.try(ctx, l)
	if err != nil {
		l.close()
		return err
	}
	k.link, k.version = l, health.Version
	return nil
}

func (l *link) wait(cmd *exec.Cmd) {
	_ = cmd.Wait()
	l.errs.flush()
	close(l.ended)
}

// try returns the executor's answer over a new link.
func (k *keeper) try(ctx context.Context, l *link) (contract.Health, error) {
	pace := time.NewTicker(bindTime)
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return contract.Health{}, ctx.Err()
		case <-l.ended:
			return contract.Health{}, &LoginError{k.cfg.Address, l.errs.last()}
		case <-pace.C:
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(k.r.URL, "http://"))
		if err != nil {
			continue
		}
		conn.Close()
		health, err := answers(ctx, k.r)
		if err != nil {
			err = fmt.Errorf("%w (%v)", errSilent, err)
		}
		return health, err
	}
}

// move gives the runtime another port of this computer.
func (k *keeper) move() (err error) {
	if k.r.URL, err = freeURL(); err != nil {
		return err
	}
	_, err = k.cfg.Store.PutIf(k.r, func(now pairing.Runtime) error { return sameSecret(now, k.r) })
	return err
}

// remember stores the arguments of a command that connected, for later hints.
func (k *keeper) remember() error {
	now, err := k.known()
	if err != nil || slices.Equal(now.SSHArguments, k.r.SSHArguments) {
		return err
	}
	_, err = k.cfg.Store.PutIf(k.r, func(now pairing.Runtime) error { return sameSecret(now, k.r) })
	return err
}

// answers returns what the executor of r answers to a signed request.
func answers(ctx context.Context, r pairing.Runtime) (contract.Health, error) {
	ctx, cancel := context.WithTimeout(client.WithReachLimit(ctx), answerTime)
	defer cancel()
	vm, err := client.New(client.Config{BaseURL: r.URL, Secret: r.Secret})
	if err != nil {
		return contract.Health{}, err
	}
	defer vm.Close()
	return vm.SignedHealth(ctx)
}
