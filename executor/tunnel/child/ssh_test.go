package child

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"colabrelay/executor/tunnel/tunneltest"
)

// refusalOf runs the tunnel until it is refused and returns the refusal's text.
func refusalOf(t *testing.T, c SSH) string {
	t.Helper()
	return start(t, sshNow(t, c), hello).Refused().Error()
}

func mustServe(t *testing.T, c SSH) {
	t.Helper()
	r := start(t, sshNow(t, c), hello)
	if _, body, err := visit(r.URL()); err != nil || body != "hello" {
		t.Errorf("got %q, %v", body, err)
	}
	_ = r.Stop()
}

func TestAnUnknownSSHServerIsRefusedUntilItIsAccepted(t *testing.T) {
	s := startServer(t)
	must(t, os.Remove(s.knownHosts()))
	c := s.config()
	text := refusalOf(t, c)
	if !strings.Contains(text, ssh.FingerprintSHA256(s.host)) || !strings.Contains(text, "--ssh-accept-new") {
		t.Errorf("it says %q", text)
	}
	if _, err := os.Stat(s.knownHosts()); !os.IsNotExist(err) {
		t.Errorf("the key was saved without permission: %v", err)
	}
	c.AcceptNew = true
	mustServe(t, c)
	c.AcceptNew = false
	mustServe(t, c)
	raw, err := os.ReadFile(s.knownHosts())
	if err != nil || strings.Count(string(raw), "\n") != 1 {
		t.Errorf("known hosts are %q, %v", raw, err)
	}
}

func TestAServerWithAChangedKeyIsNeverAccepted(t *testing.T) {
	s := startServer(t)
	s.know(s.newKey(filepath.Join(s.home, "impostor")).PublicKey())
	c := s.config()
	c.AcceptNew = true
	before, _ := os.ReadFile(s.knownHosts())
	text := refusalOf(t, c)
	if !strings.Contains(text, "its key has changed") || !strings.Contains(text, s.knownHosts()+":1") || !strings.Contains(text, ssh.FingerprintSHA256(s.host)) {
		t.Errorf("it says %q", text)
	}
	if after, _ := os.ReadFile(s.knownHosts()); string(after) != string(before) {
		t.Errorf("known hosts became %q", after)
	}
}

// localhost.run prints it in a session, and another one when the old one ends.
func TestTheServersURLIsReadFromASession(t *testing.T) {
	s := startServer(t)
	s.mu.Lock()
	s.prints = "More: https://localhost.run/docs/\r\na.lhr.life tunneled with tls termination, https://a.lhr.life\r\n"
	s.mu.Unlock()
	c := s.config()
	c.Remote, c.URL = "80", "auto"
	if url := start(t, sshNow(t, c), hello).URL(); url != "https://a.lhr.life" {
		t.Errorf("it reports %q", url)
	}
	if s.bound() != "localhost:80" && s.bound() != ":80" {
		t.Errorf("the server listens at %q", s.bound())
	}
}

func TestPublicURL(t *testing.T) {
	for line, want := range map[string]string{
		"4f1c7a2b9d.lhr.life tunneled with tls termination, https://4f1c7a2b9d.lhr.life": "https://4f1c7a2b9d.lhr.life",
		"Forwarding HTTP traffic from https://abc.serveo.net":                            "https://abc.serveo.net",
		"To set up and manage custom domains go to https://admin.localhost.run/":         "",
		"More details: https://localhost.run/docs/custom-domains":                        "",
		"http://plain.example.com":                                                       "",
		"":                                                                               "",
	} {
		if got := publicURL(line, "localhost.run"); got != want {
			t.Errorf("%q gave %q", line, got)
		}
	}
}

func TestCheckLogsInAndForwardsAPort(t *testing.T) {
	s := startServer(t)
	found, err := sshNow(t, s.config()).Check(t.Context())
	if want := `ssh server "127.0.0.1" accepts the login and forwards a port`; err != nil || found != want {
		t.Errorf("it found %q, %v", found, err)
	}
}

func TestSSHConforms(t *testing.T) {
	tunneltest.Run(t, func(t *testing.T) tunneltest.Rig {
		s := startServer(t)
		return tunneltest.Rig{
			Tunnel: sshNow(t, s.config()),
			Drop:   s.cut,
			Change: s.cut, // the server chooses another port
			Refuse: func() { s.authorize(s.newKey(filepath.Join(s.home, "another")).PublicKey()) },
		}
	})
}

// sshNow returns a tunnel that gives up soon and heeds no configuration of this machine.
func sshNow(t *testing.T, c SSH) *Tunnel {
	t.Helper()
	c.Getenv = func(string) string { return "" }
	tun, err := NewSSH(c)
	must(t, err)
	args := tun.args
	tun.args = func(address string) []string { return append([]string{"-F", "none"}, args(address)...) }
	return impatient(tun)
}
