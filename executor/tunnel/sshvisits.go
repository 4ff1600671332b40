package tunnel

import (
	"io"
	"net"
	"strconv"
	"sync"

	"golang.org/x/crypto/ssh"
)

// maxVisits bounds the connections that one link carries at a time; each holds
// up to 2 MiB of the SSH library's window. More are turned away.
const maxVisits = 256

// visits is the listener of what an SSH server forwards.
type visits struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{} // by Close
	gone   chan struct{} // the link ended: nothing can come any more
	work   sync.WaitGroup
	slots  chan struct{}
}

func newVisits(channels <-chan ssh.NewChannel) *visits {
	v := &visits{
		conns: make(chan net.Conn), closed: make(chan struct{}), gone: make(chan struct{}),
		slots: make(chan struct{}, maxVisits),
	}
	v.work.Go(func() {
		defer close(v.gone)
		for channel := range channels {
			v.open(channel)
		}
	})
	return v
}

// open takes one visitor in, or turns it away.
func (v *visits) open(channel ssh.NewChannel) {
	select {
	case <-v.closed:
		_ = channel.Reject(ssh.Prohibited, "closed") // it may be gone already
		return
	default:
	}
	select {
	case v.slots <- struct{}{}:
	default:
		_ = channel.Reject(ssh.ResourceShortage, "too many connections")
		return
	}
	origin, err := readOrigin(channel.ExtraData())
	if err != nil {
		<-v.slots
		_ = channel.Reject(ssh.ConnectionFailed, "no origin")
		return
	}
	stream, requests, err := channel.Accept()
	if err != nil {
		<-v.slots
		return
	}
	v.work.Go(func() { ssh.DiscardRequests(requests) })
	near, far := net.Pipe()
	v.work.Go(func() { defer func() { <-v.slots }(); v.join(stream, far) })
	conn := &forwardedConn{Conn: near, origin: origin}
	v.work.Go(func() {
		select {
		case v.conns <- conn:
		case <-v.closed:
			conn.Close()
		case <-v.gone:
			conn.Close()
		}
	})
}

// readOrigin finds the visitor's address, as the server saw it, in what opens a
// forwarded-tcpip channel.
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

// join carries bytes both ways until one side or the link ends; what a side
// wrote before its end is delivered.
func (v *visits) join(stream ssh.Channel, far net.Conn) {
	var both sync.WaitGroup
	ended := make(chan struct{})
	v.work.Go(func() {
		select {
		case <-ended:
		case <-v.gone: // an HTTP handler may be neither reading nor writing
			far.Close()
		}
	})
	defer close(ended)
	both.Go(func() {
		_, _ = io.Copy(far, stream) // either side may go at any time
		far.Close()
	})
	both.Go(func() {
		_, _ = io.Copy(stream, far)
		stream.Close()
	})
	both.Wait()
}

// Accept implements net.Listener.
func (v *visits) Accept() (net.Conn, error) {
	select {
	case <-v.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-v.conns:
		return c, nil
	case <-v.closed:
		return nil, net.ErrClosed
	case <-v.gone:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It returns at once; what was accepted goes on.
func (v *visits) Close() error {
	v.once.Do(func() { close(v.closed) })
	return nil
}

// wait blocks until the link's last connection has ended; the link must be closed.
func (v *visits) wait() { v.work.Wait() }

// Addr implements net.Listener.
func (v *visits) Addr() net.Addr { return textAddr("ssh") }

// textAddr is an address as another machine wrote it.
type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }
