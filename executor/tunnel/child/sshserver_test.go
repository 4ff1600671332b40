package child

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// server is an SSH server on loopback that accepts one key and forwards ports, as OpenSSH does,
// and prints in a session what it is told, as localhost.run does.
type server struct {
	t        *testing.T
	address  string
	home     string // the tunnel's keys and known hosts
	host     ssh.PublicKey
	settings *ssh.ServerConfig
	work     sync.WaitGroup

	mu      sync.Mutex
	allowed ssh.PublicKey
	prints  string
	bind    string // requested by the last forward
	conns   map[net.Conn]bool
}

// startServer runs a server until the test has ended.
func startServer(t *testing.T) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &server{t: t, address: l.Addr().String(), home: t.TempDir(), conns: map[net.Conn]bool{}}
	must(t, os.Mkdir(filepath.Join(s.home, ".ssh"), 0o700))
	s.settings = &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !bytes.Equal(key.Marshal(), s.allowed.Marshal()) {
			return nil, errors.New("another key")
		}
		return nil, nil
	}}
	signer := s.newKey(filepath.Join(s.home, "host_key"))
	s.settings.AddHostKey(signer)
	s.host = signer.PublicKey()
	s.know(s.host)
	s.authorize(s.newKey(filepath.Join(s.home, ".ssh", "id_ed25519")).PublicKey())
	s.work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[conn] = true
			s.mu.Unlock()
			s.work.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); s.cut(); s.work.Wait() })
	return s
}

func (s *server) serve(conn net.Conn) {
	defer conn.Close()
	c, channels, requests, err := ssh.NewServerConn(conn, s.settings)
	if err != nil {
		return
	}
	var forwards []net.Listener
	s.work.Go(func() {
		for req := range requests {
			if req.Type == "tcpip-forward" {
				forwards = append(forwards, s.forward(c, req))
			} else {
				_ = req.Reply(false, nil)
			}
		}
		for _, l := range forwards {
			l.Close()
		}
	})
	for open := range channels {
		channel, requests, err := open.Accept()
		if err != nil {
			return
		}
		s.work.Go(func() {
			for req := range requests {
				_ = req.Reply(req.Type == "shell", nil)
				if req.Type == "shell" {
					s.mu.Lock()
					fmt.Fprint(channel, s.prints)
					s.mu.Unlock()
				}
			}
		})
	}
}

// forward listens on the requested port, of which a service's, below 1024, is that of a proxy.
func (s *server) forward(c *ssh.ServerConn, req *ssh.Request) net.Listener {
	var ask struct {
		Bind string
		Port uint32
	}
	_ = ssh.Unmarshal(req.Payload, &ask)
	s.mu.Lock()
	s.bind = net.JoinHostPort(ask.Bind, strconv.Itoa(int(ask.Port)))
	s.mu.Unlock()
	listened := ask.Port
	if listened < 1024 {
		listened = 0
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", listened))
	if err != nil {
		_ = req.Reply(false, nil)
		return &net.TCPListener{} // can be closed
	}
	port := uint32(l.Addr().(*net.TCPAddr).Port)
	s.work.Go(func() {
		for {
			visitor, err := l.Accept()
			if err != nil {
				return
			}
			s.work.Go(func() { carry(c, visitor, ask.Bind, port) })
		}
	})
	_ = req.Reply(true, ssh.Marshal(struct{ Port uint32 }{port}))
	return l
}

// carry forwards one visitor's connection until both sides have ended.
func carry(c *ssh.ServerConn, visitor net.Conn, bind string, port uint32) {
	defer visitor.Close()
	from := visitor.RemoteAddr().(*net.TCPAddr)
	channel, requests, err := c.OpenChannel("forwarded-tcpip", ssh.Marshal(struct {
		Bind   string
		Port   uint32
		Origin string
		From   uint32
	}{bind, port, from.IP.String(), uint32(from.Port)}))
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(channel, visitor); channel.Close() })
	both.Go(func() { _, _ = io.Copy(visitor, channel); visitor.Close() })
	both.Wait()
}

// cut closes every connection, as a network fault does.
func (s *server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		conn.Close()
		delete(s.conns, conn)
	}
}

// bound is what the last forward asked for.
func (s *server) bound() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bind
}

// config is the config of a tunnel that the server accepts.
func (s *server) config() SSH {
	return SSH{Server: "me@" + s.address, KeyFile: filepath.Join(s.home, ".ssh", "id_ed25519"), KnownHosts: s.knownHosts()}
}

// authorize makes the server accept only this key.
func (s *server) authorize(key ssh.PublicKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowed = key
}

func (s *server) knownHosts() string { return filepath.Join(s.home, ".ssh", "known_hosts") }

// know writes the key to the known hosts.
func (s *server) know(key ssh.PublicKey) {
	s.write(s.knownHosts(), knownhosts.Line([]string{knownhosts.Normalize(s.address)}, key)+"\n")
}

func (s *server) write(path, text string) {
	s.t.Helper()
	must(s.t, os.WriteFile(path, []byte(text), 0o600))
}

// newKey makes a key pair and writes its private key.
func (s *server) newKey(path string) ssh.Signer {
	s.t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	must(s.t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	must(s.t, err)
	s.write(path, string(pem.EncodeToMemory(block)))
	signer, err := ssh.NewSignerFromKey(private)
	must(s.t, err)
	return signer
}
