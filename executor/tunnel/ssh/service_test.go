package ssh

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
)

// service stands in for a service such as localhost.run, which tests can't reach
// and OpenSSH can't imitate: an SSH server that accepts everybody and prints the public
// name in the session.
type service struct {
	t        *testing.T
	address  string
	settings *ssh.ServerConfig
	prints   string
	listener net.Listener
	work     sync.WaitGroup
	mu       sync.Mutex
	bind     string // requested by the last forward
}

func startService(t *testing.T, prints string) *service {
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
	s := &service{t: t, address: l.Addr().String(), prints: prints, listener: l, settings: &ssh.ServerConfig{NoClientAuth: true}}
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
		s.work.Go(func() { s.session(channel) })
	}
}

func (s *service) session(open ssh.NewChannel) {
	channel, requests, err := open.Accept()
	if err != nil {
		return
	}
	for req := range requests {
		_ = req.Reply(req.Type == "shell", nil)
		if req.Type == "shell" {
			fmt.Fprint(channel, s.prints)
		}
	}
}

func (s *service) config(home string) Config {
	return Config{Server: "nokey@" + s.address, Home: home, AcceptNew: true, Remote: "80", URL: urlFromServer}
}

func TestTheURLThatAServicePrintsIsUsed(t *testing.T) {
	const want = "https://4f1c7a2b9d.lhr.life"
	s := startService(t, "\r\nWelcome to localhost.run!\r\n\r\nTo set up and manage custom domains go to https://admin.localhost.run/\r\n\r\n"+
		"4f1c7a2b9d.lhr.life tunneled with tls termination, "+want+"\r\n")
	if url := start(t, impatient(t, s.config(t.TempDir())), hello).URL(); url != want {
		t.Errorf("the URL is %s", url)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bind != ":80" { // localhost.run accepts no other
		t.Errorf("the requested forward is %q", s.bind)
	}
}
