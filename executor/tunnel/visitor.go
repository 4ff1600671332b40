package tunnel

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// carried is a connection that a tunnel brought. Who visits is told by its
// RemoteAddr, or by a header where visitorHeader names one: that one is written
// by the tunnel's own program, in place of whatever the visitor wrote.
type carried interface{ visitorHeader() string }

// ngrokConn is a connection that ngrok brought: its RemoteAddr is the visitor's
// address as ngrok saw it.
type ngrokConn struct{ net.Conn }

func (*ngrokConn) visitorHeader() string { return "" }

// SetWriteDeadline does nothing. A write deadline that expires makes the SDK's
// multiplexer return a frame to its stream while the session's writer still
// holds it, and the next write then garbles the whole session. ngrok itself
// cuts off a visitor that does not read.
func (*ngrokConn) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline sets the read deadline only: see SetWriteDeadline.
func (c *ngrokConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// forwardedConn is a connection that an SSH server forwarded. It is one end of a
// pipe, since the library's own connections have no deadlines, without which an
// HTTP server can't stop reading.
type forwardedConn struct {
	net.Conn
	origin net.Addr
}

func (*forwardedConn) visitorHeader() string { return "" }

// RemoteAddr is the visitor's address as the server saw it.
func (c *forwardedConn) RemoteAddr() net.Addr { return c.origin }

// cloudflaredConn is a connection of our own cloudflared process.
type cloudflaredConn struct{ net.Conn }

// visitorHeader names what Cloudflare sets on each request, whatever the visitor
// sent. Only programs on this machine can connect here and write another one.
func (*cloudflaredConn) visitorHeader() string { return "Cf-Connecting-Ip" }

// visitor is who a carried connection came from.
type visitor struct {
	addr   netip.Addr
	header string // the visitor of each request stands there
}

type visitorKey struct{}

// ConnContext is for http.Server.ConnContext. It notes who a connection that
// came through a tunnel is from, and leaves all others alone.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	brought, ok := c.(carried)
	if !ok {
		return ctx
	}
	return withVisitor(ctx, visitor{addr: hostOf(c.RemoteAddr().String()), header: brought.visitorHeader()})
}

func withVisitor(ctx context.Context, v visitor) context.Context {
	return context.WithValue(ctx, visitorKey{}, v)
}

// hostOf is the address in host:port, or the zero one.
func hostOf(hostport string) netip.Addr {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return netip.Addr{}
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	return addr.Unmap().WithZone("")
}

// visitorOf tells whether a request came through a tunnel, and from whom; the
// address is the zero one where the tunnel did not tell it.
func visitorOf(req *http.Request) (addr netip.Addr, tunnelled bool) {
	v, tunnelled := req.Context().Value(visitorKey{}).(visitor)
	if v.header == "" {
		return v.addr, tunnelled
	}
	told := req.Header.Values(v.header)
	if len(told) != 1 {
		return netip.Addr{}, tunnelled
	}
	addr, err := netip.ParseAddr(told[0])
	if err != nil {
		return netip.Addr{}, tunnelled
	}
	return addr.Unmap().WithZone(""), tunnelled
}

// ClientAddr is the visitor's IP address as the tunnel told it, never from a
// header that a visitor can write. It is empty for a request that did not come
// through a tunnel; that one's RemoteAddr is true as it stands.
func ClientAddr(req *http.Request) string {
	addr, _ := visitorOf(req)
	if !addr.IsValid() {
		return ""
	}
	return addr.String()
}
