package ssh

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

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

// errNoForward is the server's refusal of a remote forward. It gives no reason.
var errNoForward = errors.New("the server does not forward the port")

// link is one login. It is not used again after its connection was lost.
type link struct {
	client    *ssh.Client
	forwarded *forwarded    // set by forward
	interval  time.Duration // between keepalives
	work      sync.WaitGroup
}

// forward asks the server to listen and returns the port. Only connections that
// are forwarded from there are ever accepted.
func (l *link) forward(bind string, port uint32) (uint32, error) {
	l.forwarded = newForwarded(l.client.HandleChannelOpen("forwarded-tcpip"))
	answer := struct{ Port uint32 }{port}
	ok, reply, err := l.client.SendRequest("tcpip-forward", true, ssh.Marshal(struct {
		Bind string
		Port uint32
	}{bind, port}))
	if err != nil {
		return 0, fmt.Errorf("request a forwarded port: %v", err)
	}
	if !ok {
		return 0, errNoForward
	}
	if port == 0 {
		if err := ssh.Unmarshal(reply, &answer); err != nil {
			return 0, fmt.Errorf("read the forwarded port: %v", err)
		}
	}
	return answer.Port, nil
}

// serve serves the forwarded connections until ctx has ended, the connection is
// lost, or announce or serve has failed. It then closes the link.
func (l *link) serve(ctx context.Context, serve func(net.Listener) error, announce func(context.Context) error) error {
	work, end := context.WithCancel(ctx)
	l.work.Go(func() { l.keepAlive(work) })
	lost := tunnel.Start(l.client.Wait)
	announced := tunnel.Start(func() error {
		err := announce(work)
		if err != nil {
			l.client.Close()
		}
		return err
	})
	served := tunnel.Serve(func() error { return serve(l.forwarded) }, lost.Done, ctx.Done())
	end()
	l.close()
	served.Err()
	return fmt.Errorf("the ssh connection is lost: %v", cmp.Or(announced.Err(), lost.Err()))
}

// close ends the connection and everything it carried. It may be called again.
func (l *link) close() {
	if l.forwarded != nil {
		l.forwarded.Close()
	}
	l.client.Close()
	if l.forwarded != nil {
		l.forwarded.work.Wait() // for its connections
	}
	l.work.Wait()
}

// keepAlive closes a connection whose server no longer responds: a NAT that
// dropped it, or a server that has disappeared, sends nothing at all. A refusal is
// a response, too.
func (l *link) keepAlive(ctx context.Context) {
	tick := time.NewTicker(l.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		silent := time.AfterFunc(silentIntervals*l.interval, func() { l.client.Close() })
		_, _, err := l.client.SendRequest("keepalive@openssh.com", true, nil)
		silent.Stop()
		if err != nil {
			return
		}
	}
}

// maxLine bounds a line that a server prints. The rest of a longer line is read
// as the next one.
const maxLine = 16 << 10

// readURLs opens a session, as services that assign addresses require, and
// reports each public URL that the server prints. It blocks until ctx has ended,
// and fails if the server prints no URL in time.
func (t *Tunnel) readURLs(ctx context.Context, l *link, report func(string)) error {
	session, err := l.client.NewSession()
	if err != nil {
		return fmt.Errorf("open a session to read the URL: %v", err)
	}
	defer session.Close()
	read, write := io.Pipe()
	defer read.Close()
	session.Stdout, session.Stderr = write, write
	if _, err := session.StdinPipe(); err != nil { // is kept open: the end of the input ends the session
		return fmt.Errorf("open a session to read the URL: %v", err)
	}
	if err := session.Shell(); err != nil {
		return fmt.Errorf("open a session to read the URL: %v", err)
	}
	l.work.Go(func() { write.CloseWithError(errors.Join(io.EOF, session.Wait())) })
	late := time.AfterFunc(t.urlTimeout, func() { read.CloseWithError(errNoURL) })
	defer late.Stop()
	found := false
	for lines := bufio.NewReaderSize(read, maxLine); ; {
		line, err := lines.ReadSlice('\n')
		if u := publicURL(string(line), t.host); u != "" {
			late.Stop()
			found = true
			report(u)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
	}
	if !found {
		return errNoURL
	}
	<-ctx.Done() // the tunnel remains open when its session ends
	return nil
}

var errNoURL = errors.New("the server printed no https URL; name it with --ssh-url")

var urlPattern = regexp.MustCompile(`https://[A-Za-z0-9.-]+\.[A-Za-z]{2,}(?::\d+)?(?:/\S*)?`)

// servicePages are the first labels of host names that services print besides
// the tunnel's address: their dashboards and documents.
var servicePages = []string{"admin", "console", "dashboard", "docs", "www"}

// publicURL returns the tunnel's address in a line, or "". The address is an
// https URL without a path that is neither the server nor a page of the service.
func publicURL(line, host string) string {
	for _, text := range urlPattern.FindAllString(line, -1) {
		u, err := url.Parse(strings.TrimRight(text, ".,;)"))
		if err != nil || u.Path != "" || u.Hostname() == host {
			continue
		}
		label, _, _ := strings.Cut(u.Hostname(), ".")
		if slices.Contains(servicePages, strings.ToLower(label)) || strings.Count(u.Hostname(), ".") < 2 {
			continue
		}
		return u.String()
	}
	return ""
}
