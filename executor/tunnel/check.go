package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"time"
)

const (
	ngrokAddress = "connect.ngrok-agent.com:443"
	checkTimeout = 10 * time.Second
)

// Check looks whether a tunnel could be had, without opening one, within 10 s.
// It returns in a line what was found; its error says what to do. For ssh it
// logs in, asks for the port and gives it back, so that another executor's own
// fixed port is told as taken.
func Check(ctx context.Context, c Config) (found string, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	switch c.Kind {
	case KindNgrok:
		return checkNgrok(ctx, cmp.Or(c.Server, ngrokAddress))
	case KindSSH:
		return checkSSH(ctx, c)
	case KindCloudflared:
		return checkCloudflared(ctx, c)
	}
	return "none", nil
}

func checkNgrok(ctx context.Context, address string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", fmt.Errorf("ngrok can't be reached: %v", err)
	}
	conn.Close()
	return "ngrok can be reached at " + address, nil
}

func checkSSH(ctx context.Context, c Config) (string, error) {
	s, err := newSSH(c)
	if err != nil {
		return "", err
	}
	link, err := s.connect(ctx)
	if refused := new(Refused); errors.As(err, &refused) {
		return "", refused
	}
	if err != nil {
		return "", fmt.Errorf("%s can't be reached: %v", s.name(), err)
	}
	defer link.close()
	if _, err := link.forward(s.bind, s.port); err != nil {
		return "", s.notForwarded(err, newPatience(0))
	}
	return fmt.Sprintf("%s lets us in as %q and forwards a port", s.name(), s.user), nil
}

// checkCloudflared has the program tell its version, which also shows that it
// is one for this machine.
func checkCloudflared(ctx context.Context, c Config) (string, error) {
	program, err := findCloudflared()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.Env = forCloudflared(c.Getenv)
	said, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %v; install it again", program, err)
	}
	version, _, _ := strings.Cut(string(said), "\n")
	return strings.TrimSpace(version) + " at " + program, nil
}
