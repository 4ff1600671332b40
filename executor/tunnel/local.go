package tunnel

import (
	"context"
	"fmt"
	"net"
)

// Local is a listener on this machine, without a tunnel.
type Local struct{ address string }

// NewLocal returns the listener on host:port. Port 0 picks a free port.
func NewLocal(address string) *Local { return &Local{address: address} }

// Traits implements Tunnel.
func (*Local) Traits() Traits { return Traits{ReportsVisitor: true} }

// Check implements Tunnel.
func (l *Local) Check(ctx context.Context) (string, error) {
	listener, err := l.listen(ctx)
	if err != nil {
		return "", err
	}
	listener.Close()
	return l.address + " is free", nil
}

func (l *Local) listen(ctx context.Context) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", l.address)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %v; choose another address with --listen", l.address, err)
	}
	return listener, nil
}

// Run implements Tunnel. The URL holds the port that was picked.
func (l *Local) Run(ctx context.Context, ready func(url string), serve func(net.Listener) error) error {
	listener, err := l.listen(ctx)
	if err != nil {
		return err
	}
	ready("http://" + dialable(listener.Addr().(*net.TCPAddr)))
	served := Serve(func() error { return serve(listener) }, ctx.Done(), nil)
	listener.Close()
	err = served.Err()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve on %s: %v", listener.Addr(), err)
}

// dialable turns "all addresses" into one that a program on this machine can
// connect to: Windows can't dial 0.0.0.0.
func dialable(addr *net.TCPAddr) string {
	if !addr.IP.IsUnspecified() {
		return addr.String()
	}
	local := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: addr.Port}
	return local.String()
}
