package ssh

import (
	"io"
	"net"
	"strconv"
	"sync"

	"golang.org/x/crypto/ssh"

	"colabrelay/executor/tunnel"
)

// maxConnections bounds the simultaneous connections of one link. Further ones are
// refused, whoever they are of. It is twice what executor/api keeps, which decides whose
// connection goes for a new one: with less, idle strangers would keep the owner out. The
// SSH library holds up to 2 MiB of what was not read yet of each; executor/api reads the
// headers of a stranger at once, at most 20 KiB, and then closes its connection.
const maxConnections = 4096

// forwarded is the listener of the connections that an SSH server forwards.
type forwarded struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{} // closed by Close
	gone   chan struct{} // closed when the link has ended: nothing can arrive any more
	work   sync.WaitGroup
	slots  chan struct{}
}

func newForwarded(channels <-chan ssh.NewChannel) *forwarded {
	f := &forwarded{
		conns: make(chan net.Conn), closed: make(chan struct{}), gone: make(chan struct{}),
		slots: make(chan struct{}, maxConnections),
	}
	f.work.Go(func() {
		defer close(f.gone)
		for channel := range channels {
			f.open(channel)
		}
	})
	return f
}

// open accepts one visitor's connection or rejects it.
func (f *forwarded) open(channel ssh.NewChannel) {
	select {
	case <-f.closed:
		_ = channel.Reject(ssh.Prohibited, "closed") // the link may have ended already
		return
	default:
	}
	select {
	case f.slots <- struct{}{}:
	default:
		_ = channel.Reject(ssh.ResourceShortage, "too many connections")
		return
	}
	origin, err := readOrigin(channel.ExtraData())
	if err != nil {
		<-f.slots
		_ = channel.Reject(ssh.ConnectionFailed, "no origin")
		return
	}
	stream, requests, err := channel.Accept()
	if err != nil {
		<-f.slots
		return
	}
	f.work.Go(func() { ssh.DiscardRequests(requests) })
	near, far := net.Pipe()
	f.work.Go(func() { defer func() { <-f.slots }(); f.join(stream, far) })
	conn := &tunnel.Conn{Conn: &pipeEnd{Conn: near, origin: origin}}
	f.work.Go(func() {
		select {
		case f.conns <- conn:
		case <-f.closed:
			conn.Close()
		case <-f.gone:
			conn.Close()
		}
	})
}

// readOrigin returns the visitor's address, as the server saw it, from the data
// that opens a forwarded-tcpip channel.
func readOrigin(extra []byte) (net.Addr, error) {
	var open struct {
		Bind   string
		Port   uint32
		Origin string
		From   uint32
	}
	if err := ssh.Unmarshal(extra, &open); err != nil {
		return nil, err
	}
	return textAddr(net.JoinHostPort(open.Origin, strconv.FormatUint(uint64(open.From), 10))), nil
}

// join copies both ways until one side or the link ends. What a side wrote
// before its end is delivered.
func (f *forwarded) join(stream ssh.Channel, far net.Conn) {
	var both sync.WaitGroup
	ended := make(chan struct{})
	f.work.Go(func() {
		select {
		case <-ended:
		case <-f.gone: // an HTTP handler may be neither reading nor writing
			far.Close()
		}
	})
	defer close(ended)
	both.Go(func() {
		_, _ = io.Copy(far, stream) // either side may end at any time
		far.Close()
	})
	both.Go(func() {
		_, _ = io.Copy(stream, far)
		stream.Close()
	})
	both.Wait()
}

// Accept implements net.Listener.
func (f *forwarded) Accept() (net.Conn, error) {
	select {
	case <-f.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.closed:
		return nil, net.ErrClosed
	case <-f.gone:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It returns immediately, and leaves accepted
// connections open.
func (f *forwarded) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}

// Addr implements net.Listener.
func (f *forwarded) Addr() net.Addr { return textAddr("ssh") }

// pipeEnd is the HTTP server's end of a forwarded connection. It is a pipe
// because the library's own connections have no deadlines, without which an HTTP
// server can't stop reading.
type pipeEnd struct {
	net.Conn
	origin net.Addr
}

// RemoteAddr is the visitor's address as the server saw it.
func (c *pipeEnd) RemoteAddr() net.Addr { return c.origin }

// textAddr is an address as another machine wrote it.
type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }
