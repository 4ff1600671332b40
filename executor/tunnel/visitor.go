package tunnel

import (
	"context"
	"net"
	"net/http"
	"net/netip"
)

// Conn is a connection that arrived through a tunnel. Its RemoteAddr is the
// visitor's address, unless VisitorHeader names the header that holds the
// address. Only a header that the tunnel's own program writes, replacing what
// the visitor wrote, may be named.
type Conn struct {
	net.Conn
	VisitorHeader string
}

// visitor is what is known about the visitor behind a Conn.
type visitor struct {
	addr   netip.Addr
	header string // each request's header of this name holds the address instead
}

type visitorKey struct{}

// ConnContext is for http.Server.ConnContext. It records which connections
// arrived through a tunnel and from where.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	conn, ok := c.(*Conn)
	if !ok {
		return ctx
	}
	return withVisitor(ctx, visitor{addr: hostOf(conn.RemoteAddr().String()), header: conn.VisitorHeader})
}

func withVisitor(ctx context.Context, v visitor) context.Context {
	return context.WithValue(ctx, visitorKey{}, v)
}

// hostOf returns the address in host:port, or the zero address.
func hostOf(hostport string) netip.Addr {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return netip.Addr{}
	}
	return parseAddr(host)
}

// parseAddr returns the address that text holds, or the zero address.
func parseAddr(text string) netip.Addr {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return addr.Unmap().WithZone("")
}

// visitorOf says whether a request arrived through a tunnel, and from which
// address. The address is zero if the tunnel did not report it.
func visitorOf(req *http.Request) (addr netip.Addr, tunnelled bool) {
	v, tunnelled := req.Context().Value(visitorKey{}).(visitor)
	if v.header == "" {
		return v.addr, tunnelled
	}
	values := req.Header.Values(v.header)
	if len(values) != 1 {
		return netip.Addr{}, tunnelled
	}
	return parseAddr(values[0]), tunnelled
}

// ClientAddr returns the visitor's IP address as the tunnel reported it, never
// from a header that a visitor can write. It is empty for a request that did not
// arrive through a tunnel: the RemoteAddr of that request can be trusted.
func ClientAddr(req *http.Request) string {
	addr, _ := visitorOf(req)
	if !addr.IsValid() {
		return ""
	}
	return addr.String()
}
