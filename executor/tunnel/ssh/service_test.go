package ssh

import (
	"bufio"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"colabrelay/executor/tunnel/tunneltest"
	"colabrelay/shared/within"
)

// service stands in for a service such as localhost.run, which tests can't reach
// and OpenSSH can't imitate: an SSH server that accepts everybody, forwards its own
// web server's requests, and prints the public name in the session. The name
// leads back to this machine: see tunneltest.StandInName.
type service struct {
	t        *testing.T
	address  string
	settings *ssh.ServerConfig
	print    func(port string) string
	listener net.Listener
	work     sync.WaitGroup
	mu       sync.Mutex
	bind     string // requested by the last forward
}

func startService(t *testing.T, print func(port string) string) *service {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, address: l.Addr().String(), print: print, listener: l, settings: &ssh.ServerConfig{NoClientAuth: true}}
	s.settings.AddHostKey(signer)
	s.work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.work.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); s.work.Wait() })
	return s
}

func (s *service) serve(conn net.Conn) {
	c, channels, requests, err := ssh.NewServerConn(conn, s.settings)
	if err != nil {
		return
	}
	defer c.Close()
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Error(err)
		return
	}
	server := &http.Server{Handler: s.forward(c)}
	defer server.Close()
	s.work.Go(func() { _ = server.Serve(web) })
	_, port, _ := net.SplitHostPort(web.Addr().String())
	s.work.Go(func() {
		for req := range requests {
			if req.Type != "tcpip-forward" {
				_ = req.Reply(false, nil)
				continue
			}
			var forward struct {
				Bind string
				Port uint32
			}
			_ = ssh.Unmarshal(req.Payload, &forward)
			s.mu.Lock()
			s.bind = net.JoinHostPort(forward.Bind, strconv.Itoa(int(forward.Port)))
			s.mu.Unlock()
			_ = req.Reply(true, ssh.Marshal(struct{ Port uint32 }{80}))
		}
	})
	for channel := range channels {
		s.work.Go(func() { s.session(channel, port) })
	}
}

func (s *service) session(open ssh.NewChannel, port string) {
	channel, requests, err := open.Accept()
	if err != nil {
		return
	}
	for req := range requests {
		_ = req.Reply(req.Type == "shell", nil)
		if req.Type == "shell" {
			fmt.Fprint(channel, s.print(port))
		}
	}
}

func (s *service) forward(c *ssh.ServerConn) http.Handler {
	to := &url.URL{Scheme: "http", Host: "executor"}
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: overSSH{c},
	}
}

// overSSH sends each request over its own channel.
type overSSH struct{ c *ssh.ServerConn }

func (o overSSH) RoundTrip(req *http.Request) (*http.Response, error) {
	channel, requests, err := o.c.OpenChannel("forwarded-tcpip", ssh.Marshal(struct {
		Bind   string
		Port   uint32
		Origin string
		From   uint32
	}{"", 80, "203.0.113.9", 4711}))
	if err != nil {
		return nil, err
	}
	go ssh.DiscardRequests(requests)
	if err := req.Write(channel); err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(bufio.NewReader(channel), req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(res.Body)
	channel.Close()
	res.Body = io.NopCloser(strings.NewReader(string(body)))
	return res, err
}

func (s *service) config(home string) Config {
	return Config{Server: "nokey@" + s.address, Home: home, AcceptNew: true, Remote: "80", URL: urlFromServer}
}

func TestTheURLThatAServicePrintsIsUsed(t *testing.T) {
	s := startService(t, func(port string) string {
		return "\r\nWelcome to localhost.run!\r\n\r\nTo set up and manage custom domains go to https://admin.localhost.run/\r\n\r\n" +
			tunneltest.StandInName(port) + " tunneled with tls termination, https://" + tunneltest.StandInName(port) + "\r\n"
	})
	r := start(t, impatient(t, s.config(t.TempDir())), hello)
	url := r.URL()
	if _, body, err := visit(url); err != nil || body != "hello" {
		t.Errorf("%s gave %q, %v", url, body, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bind != ":80" { // localhost.run accepts no other
		t.Errorf("the requested forward is %q", s.bind)
	}
}

func TestAServiceThatPrintsNoURLIsDisconnected(t *testing.T) {
	s := startService(t, func(string) string { return "Welcome\r\n" })
	tun := impatient(t, s.config(t.TempDir()))
	tun.urlTimeout = tunneltest.QuickRetry
	log := &tunneltest.Log{}
	tun.retry.Log = slog.New(slog.NewTextHandler(log, nil))
	r := start(t, tun, hello)
	within.Until(t, "that is logged", func() bool { return strings.Contains(log.String(), "--ssh-url") })
	_ = r.Stop()
}
