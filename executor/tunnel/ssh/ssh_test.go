package ssh

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"colabrelay/executor/tunnel/tunneltest"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

var (
	start = tunneltest.Start
	visit = tunneltest.Visit
	hello = tunneltest.Hello
)

// refusalOf runs the tunnel until it is refused and returns the refusal's text.
func refusalOf(t *testing.T, c Config) string {
	t.Helper()
	return start(t, impatient(t, c), hello).Refused().Error()
}

func mustServe(t *testing.T, c Config) {
	t.Helper()
	r := start(t, impatient(t, c), hello)
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
	if !strings.Contains(text, ssh.FingerprintSHA256(s.host)) || !strings.Contains(text, "--ssh-accept-new") || !strings.Contains(text, s.knownHosts()) {
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
	if info, statErr := os.Stat(s.knownHosts()); err != nil || statErr != nil || info.Mode().Perm() != 0o600 || strings.Count(string(raw), "\n") != 1 {
		t.Errorf("known hosts are %q, %v", raw, err)
	}
}

func TestAcceptingAServerKeepsOtherServers(t *testing.T) {
	s := startServer(t)
	other := "other.example.com " + string(ssh.MarshalAuthorizedKey(s.host))
	s.write(s.knownHosts(), strings.TrimSpace(other)) // the last line lacks its newline
	c := s.config()
	c.AcceptNew = true
	mustServe(t, c)
	raw, err := os.ReadFile(s.knownHosts())
	if err != nil || !strings.HasPrefix(string(raw), other) || strings.Count(string(raw), "\n") != 2 {
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

func TestAServerThatGoesSilentIsReconnected(t *testing.T) {
	s := startServer(t)
	tun := impatient(t, s.config())
	tun.keepAlive = 10 * tunneltest.QuickRetry
	r := start(t, tun, hello)
	url := r.URL()
	s.silence(true)
	within.Until(t, "another connection is attempted", func() bool { return s.connections() > 1 })
	s.silence(false)
	within.Until(t, "it answers again", func() bool {
		url = r.Latest(url)
		_, body, err := visit(url)
		return err == nil && body == "hello"
	})
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
	found, err := impatient(t, s.config()).Check(t.Context())
	if want := `ssh server "127.0.0.1" accepts the login as "me" and forwards a port`; err != nil || found != want {
		t.Errorf("it found %q, %v", found, err)
	}
}

func FuzzPublicURL(f *testing.F) {
	f.Add("a.lhr.life tunneled with tls termination, https://a.lhr.life", "localhost.run")
	f.Fuzz(func(t *testing.T, line, host string) {
		if got := publicURL(line, host); got != "" && !strings.HasPrefix(got, "https://") {
			t.Errorf("%q gave %q", line, got)
		}
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSSHConforms(t *testing.T) {
	tunneltest.Run(t, func(t *testing.T) tunneltest.Rig {
		s := startServer(t)
		return tunneltest.Rig{
			Tunnel: impatient(t, s.config()),
			Drop:   s.cut,
			Change: s.cut, // the server chooses another port
			Refuse: func() { s.authorize(s.newKey(filepath.Join(s.home, "another")).PublicKey()) },
		}
	})
}

// impatient returns a tunnel with short delays that gives up soon.
func impatient(t *testing.T, c Config) *Tunnel {
	t.Helper()
	tun, err := New(c)
	must(t, err)
	tun.retry.First, tun.retry.GiveUp = tunneltest.QuickRetry, 10*tunneltest.QuickRetry
	return tun
}

// visitor is a connection that a server forwards. Its visitor sends nothing.
type visitor struct {
	ssh.Channel
	gone     chan struct{}
	requests chan *ssh.Request
	rejected *ssh.RejectionReason
}

func newVisitor() *visitor {
	return &visitor{gone: make(chan struct{}), requests: make(chan *ssh.Request)}
}

func (v *visitor) Accept() (ssh.Channel, <-chan *ssh.Request, error) { return v, v.requests, nil }
func (v *visitor) ChannelType() string                               { return "forwarded-tcpip" }
func (v *visitor) Reject(reason ssh.RejectionReason, _ string) error {
	v.rejected = &reason
	return nil
}

func (v *visitor) ExtraData() []byte {
	return ssh.Marshal(struct {
		Bind   string
		Port   uint32
		Origin string
		From   uint32
	}{"localhost", 80, "198.51.100.1", 5000})
}

func (v *visitor) Read([]byte) (int, error) {
	<-v.gone
	return 0, io.EOF
}

func (v *visitor) Close() error {
	close(v.requests)
	return nil
}

// Idle strangers take no place that an owner needs before the HTTP server, which has limits of
// its own, had to choose.
func TestThousandsOfIdleVisitorsLeaveRoom(t *testing.T) {
	tier.Long(t)
	const keptByAPI = 1024 + 1024
	channels := make(chan ssh.NewChannel)
	f := newForwarded(channels)
	open := func() *visitor {
		v := newVisitor()
		channels <- v
		return v
	}
	var idle []*visitor
	for len(idle) < maxConnections {
		v := open()
		conn, err := f.Accept()
		if err != nil || v.rejected != nil {
			t.Fatalf("visitor %d: %v, rejected %v", len(idle), err, v.rejected)
		}
		defer conn.Close()
		idle = append(idle, v)
	}
	if len(idle) <= keptByAPI {
		t.Errorf("a link carries %d connections, fewer than the HTTP server keeps", len(idle))
	}
	one := open()
	close(channels)
	<-f.gone // so open has returned
	if one.rejected == nil || *one.rejected != ssh.ResourceShortage {
		t.Errorf("one past the bound: rejected %v", one.rejected)
	}
	for _, v := range idle {
		close(v.gone)
	}
	f.work.Wait()
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
