package tunnel

import (
	"context"
	"net"
	"net/http"
	"time"
)

// visitorConn is a connection that a tunnel brought: its RemoteAddr is the
// visitor's address as the tunnel's operator saw it.
type visitorConn struct{ net.Conn }

type visitorKey struct{}

// ConnContext is for http.Server.ConnContext. It notes the visitor's address of
// a connection that came through a tunnel, and leaves all others alone.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	v, ok := c.(*visitorConn)
	if !ok {
		return ctx
	}
	host, _, err := net.SplitHostPort(v.RemoteAddr().String())
	if err != nil || net.ParseIP(host) == nil {
		return ctx
	}
	return context.WithValue(ctx, visitorKey{}, host)
}

// ClientAddr is the visitor's IP address as the tunnel told it on the
// connection itself, never from a header, which any visitor can write. It is
// empty for a request that did not come through a tunnel; that one's
// RemoteAddr is true as it stands.
func ClientAddr(req *http.Request) string {
	host, _ := req.Context().Value(visitorKey{}).(string)
	return host
}

// SetWriteDeadline does nothing. A write deadline that expires makes the SDK's
// multiplexer return a frame to its stream while the session's writer still
// holds it, and the next write then garbles the whole session. ngrok itself
// cuts off a visitor that does not read.
func (*visitorConn) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline sets the read deadline only: see SetWriteDeadline.
func (c *visitorConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }
