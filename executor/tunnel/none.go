package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// None is no tunnel at all: a listener on this machine.
type None struct{ listen string }

// NewNone makes the tunnel that listens on host:port; port 0 picks a free one.
func NewNone(listen string) *None { return &None{listen: listen} }

// Run implements Tunnel. The URL holds the port really taken.
func (n *None) Run(ctx context.Context, ready func(url string), serve func(net.Listener) error) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", n.listen)
	if err != nil {
		return fmt.Errorf("listen on %q: %v; choose another address with --listen", n.listen, err)
	}
	ready("http://" + dialable(l.Addr().(*net.TCPAddr)))
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	err = serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		<-ctx.Done()
	}
	l.Close()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve on %s: %v", l.Addr(), err)
}

// dialable turns "all addresses" into one that a program on this machine can
// connect to: 0.0.0.0 can't be dialled on Windows.
func dialable(addr *net.TCPAddr) string {
	if !addr.IP.IsUnspecified() {
		return addr.String()
	}
	local := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: addr.Port}
	return local.String()
}
