package tunnel

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// refusedWith runs the tunnel until it is refused and returns the line.
func refusedWith(t *testing.T, c Config) string {
	t.Helper()
	err := start(t, quickSSH(t, c), hello).ended(t)
	if !errors.As(err, new(*Refused)) {
		t.Fatalf("it ended with %v", err)
	}
	return err.Error()
}

func quickSSH(t *testing.T, c Config) *sshTunnel {
	t.Helper()
	s := mustNew(t, c).(*sshTunnel)
	s.retry, s.patience = quickRetry, 10*quickRetry
	return s
}

func mustServe(t *testing.T, c Config) {
	t.Helper()
	r := start(t, quickSSH(t, c), hello)
	if _, body, err := visit(t, r.url(t)); err != nil || body != "hello" {
		t.Errorf("got %q, %v", body, err)
	}
	r.stop(t)
}

func TestAnUnknownSSHServerIsRefusedUntilItIsAccepted(t *testing.T) {
	s := startSSHD(t)
	if err := os.Remove(s.knownHosts()); err != nil {
		t.Fatal(err)
	}
	c := s.Config()
	text := refusedWith(t, c)
	if !strings.Contains(text, ssh.FingerprintSHA256(s.host)) || !strings.Contains(text, "--ssh-accept-new") || !strings.Contains(text, s.knownHosts()) {
		t.Errorf("it says %q", text)
	}
	if _, err := os.Stat(s.knownHosts()); !os.IsNotExist(err) {
		t.Errorf("the key was kept unasked: %v", err)
	}
	c.SSH.AcceptNew = true
	mustServe(t, c)
	c.SSH.AcceptNew = false
	mustServe(t, c)
	raw, err := os.ReadFile(s.knownHosts())
	if info, statErr := os.Stat(s.knownHosts()); err != nil || statErr != nil || info.Mode().Perm() != 0o600 || strings.Count(string(raw), "\n") != 1 {
		t.Errorf("known hosts are %q, %v", raw, err)
	}
}

func TestAcceptingAServerKeepsTheOthers(t *testing.T) {
	s := startSSHD(t)
	other := "other.example.com " + string(ssh.MarshalAuthorizedKey(s.host))
	s.write(s.knownHosts(), strings.TrimSpace(other)) // without the last line's end
	c := s.Config()
	c.SSH.AcceptNew = true
	mustServe(t, c)
	raw, err := os.ReadFile(s.knownHosts())
	if err != nil || !strings.HasPrefix(string(raw), other) || strings.Count(string(raw), "\n") != 2 {
		t.Errorf("known hosts are %q, %v", raw, err)
	}
}

func TestAServerWithAnotherKeyIsNeverAccepted(t *testing.T) {
	s := startSSHD(t)
	s.know(s.writeKey(filepath.Join(s.home, "impostor")))
	c := s.Config()
	c.SSH.AcceptNew = true
	before, _ := os.ReadFile(s.knownHosts())
	text := refusedWith(t, c)
	if !strings.Contains(text, "not the known one") || !strings.Contains(text, s.knownHosts()+":1") || !strings.Contains(text, ssh.FingerprintSHA256(s.host)) {
		t.Errorf("it says %q", text)
	}
	if after, _ := os.ReadFile(s.knownHosts()); string(after) != string(before) {
		t.Errorf("known hosts became %q", after)
	}
}

// A server has keys of several kinds; only one of them may be known.
func TestAServerIsAskedForTheKindOfKeyThatIsKnown(t *testing.T) {
	s := startSSHD(t)
	check, err := s.hosts(t).callback()
	if err != nil {
		t.Fatal(err)
	}
	if got := s.hosts(t).algorithms(check, s.wire.Addr); fmt.Sprint(got) != "[ssh-ed25519]" {
		t.Errorf("it asks for %q", got)
	}
	if got := s.hosts(t).algorithms(check, "elsewhere:22"); got != nil {
		t.Errorf("of an unknown server it asks for %q", got)
	}
}

func TestAServerWithoutTheKindOfKeyThatIsKnownIsRefused(t *testing.T) {
	s := startSSHD(t)
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(&private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	s.know(key)
	if text := refusedWith(t, s.Config()); !strings.Contains(text, s.knownHosts()) {
		t.Errorf("it says %q", text)
	}
}

func (s *sshd) hosts(t *testing.T) knownHosts {
	t.Helper()
	return quickSSH(t, s.Config()).hosts
}

func TestAKeyOfTheAgentLetsIn(t *testing.T) {
	s := startSSHD(t)
	file := filepath.Join(s.home, ".ssh", "id_ed25519")
	pem, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	private, err := ssh.ParseRawPrivateKey(pem)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	ring := agent.NewKeyring()
	if err := ring.Add(agent.AddedKey{PrivateKey: private}); err != nil {
		t.Fatal(err)
	}
	c := s.Config()
	c.SSH.AgentSocket = filepath.Join(s.home, "agent")
	l, err := net.Listen("unix", c.SSH.AgentSocket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go agent.ServeAgent(ring, conn) //nolint:errcheck // it ends with the connection
		}
	}()
	mustServe(t, c)
}

func TestAKeyUnderAPassphraseIsToldWithTheAgent(t *testing.T) {
	s := startSSHD(t)
	file := filepath.Join(s.home, ".ssh", "id_ed25519")
	s.authorize(s.writeKey(file, "a passphrase"))
	if text := refusedWith(t, s.Config()); !strings.Contains(text, "ssh-add "+file) {
		t.Errorf("among the default keys it says %q", text)
	}
	c := s.Config()
	c.SSH.KeyFile = file
	if _, err := New(c); err == nil || !strings.Contains(err.Error(), "ssh-agent") {
		t.Errorf("as --ssh-key it says %v", err)
	}
}

func TestSSHWithoutAnyKeySaysSo(t *testing.T) {
	s := startSSHD(t)
	if err := os.Remove(filepath.Join(s.home, ".ssh", "id_ed25519")); err != nil {
		t.Fatal(err)
	}
	c := s.Config()
	c.SSH.AgentSocket = filepath.Join(s.home, "gone") // an agent that has ended
	if text := refusedWith(t, c); !strings.Contains(text, "--ssh-key") {
		t.Errorf("it says %q", text)
	}
}

func TestAServerThatForwardsNothingEndsIt(t *testing.T) {
	s := startSSHD(t, "AllowTcpForwarding no")
	if text := refusedWith(t, s.Config()); !strings.Contains(text, "AllowTcpForwarding") {
		t.Errorf("it says %q", text)
	}
}

func TestAFixedPortComesBackAndIsWaitedFor(t *testing.T) {
	s := startSSHD(t)
	c := s.Config()
	_, port, _ := net.SplitHostPort(freeAddress(t))
	c.SSH.Remote = "localhost:" + port
	first := start(t, quickSSH(t, c), hello)
	if url := first.url(t); !strings.HasSuffix(url, ":"+port) {
		t.Errorf("the URL is %s", url)
	}
	if text := refusedWith(t, c); !strings.Contains(text, "port "+port) || !strings.Contains(text, "--ssh-remote 0") {
		t.Errorf("while the port is taken it says %q", text)
	}
	patient := quickSSH(t, c)
	patient.patience = busyPatience
	before := s.wire.Connections()
	second := start(t, patient, hello)
	until(t, "the second tried twice", func() bool { return s.wire.Connections() >= before+2 })
	first.stop(t)
	if _, body, err := visit(t, second.url(t)); err != nil || body != "hello" {
		t.Errorf("got %q, %v", body, err)
	}
}

func TestAServerThatFallsSilentIsLeft(t *testing.T) {
	s := startSSHD(t)
	tun := quickSSH(t, s.Config())
	tun.alive = quickRetry
	r := start(t, tun, hello)
	url := r.url(t)
	s.wire.Mute(true)
	until(t, "another connection is tried", func() bool { return s.wire.Connections() > 1 })
	s.wire.Mute(false)
	s.wire.Cut() // those of the silent time
	until(t, "it answers again", func() bool {
		url = r.latest(url)
		_, body, err := visit(t, url)
		return err == nil && body == "hello"
	})
}

func TestAnUnreachableSSHServerIsTriedAgain(t *testing.T) {
	s := startSSHD(t)
	c := s.Config()
	log := &lines{}
	c.Log = slog.New(slog.NewTextHandler(log, nil))
	gone := freeAddress(t)
	c.SSH.Server = s.user + "@" + gone
	s.write(s.knownHosts(), "")
	c.SSH.AcceptNew = true
	r := start(t, quickSSH(t, c), hello)
	until(t, "the failure is logged", func() bool { return strings.Contains(log.String(), "refused") })
	l, err := net.Listen("tcp", gone)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go forward(l, s.wire.Addr)
	if _, body, err := visit(t, r.url(t)); err != nil || body != "hello" {
		t.Errorf("got %q, %v", body, err)
	}
}

func TestSSHCarriesLargeBodiesUnchanged(t *testing.T) {
	s := startSSHD(t)
	url := start(t, quickSSH(t, s.Config()), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		if _, err := io.Copy(w, req.Body); err != nil {
			t.Error(err)
		}
	})).url(t)
	const size = 20 << 20
	sent, got := sha256.New(), sha256.New()
	body := io.TeeReader(io.LimitReader(&counting{}, size), sent)
	res, err := http.Post(url, "application/octet-stream", body)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if n, err := io.Copy(got, res.Body); err != nil || n != size {
		t.Fatalf("%d of %d bytes came back, %v", n, size, err)
	}
	if fmt.Sprintf("%x", sent.Sum(nil)) != fmt.Sprintf("%x", got.Sum(nil)) {
		t.Error("the bytes came back changed")
	}
}

// counting is endless and nowhere the same.
type counting struct{ n uint64 }

func (c *counting) Read(p []byte) (int, error) {
	for i := range p {
		c.n = c.n*6364136223846793005 + 1442695040888963407
		p[i] = byte(c.n >> 56)
	}
	return len(p), nil
}

// A handler that neither reads nor writes must not hold up the next link.
func TestALostLinkIsReplacedWhileAHandlerIsIdle(t *testing.T) {
	s := startSSHD(t)
	entered, release := make(chan struct{}), make(chan struct{})
	r := start(t, quickSSH(t, s.Config()), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost {
			close(entered)
			<-release
		}
	}))
	url := r.url(t)
	answered := make(chan error, 1)
	go func() {
		res, err := http.Post(url, "text/plain", io.LimitReader(&counting{}, 64<<20))
		if err == nil {
			res.Body.Close()
		}
		answered <- err
	}()
	<-entered
	s.wire.Cut()
	if _, _, err := visit(t, r.url(t)); err != nil { // another port: the lost link has wholly ended
		t.Error(err)
	}
	close(release)
	if err := <-answered; err == nil {
		t.Error("the request outlived its link")
	}
}

func TestPublicURLsOfServices(t *testing.T) {
	for line, want := range map[string]string{
		"4f1c7a2b9d.lhr.life tunneled with tls termination, https://4f1c7a2b9d.lhr.life": "https://4f1c7a2b9d.lhr.life",
		"Forwarding HTTP traffic from https://abc.serveo.net":                            "https://abc.serveo.net",
		"https://rnabc-1-2-3-4.a.free.pinggy.link":                                       "https://rnabc-1-2-3-4.a.free.pinggy.link",
		"To set up and manage custom domains go to https://admin.localhost.run/":         "",
		"More details: https://localhost.run/docs/custom-domains":                        "",
		"https://localhost.run/docs/faq#generating-an-ssh-key":                           "",
		"Upgrade at https://dashboard.pinggy.io.":                                        "",
		"see https://localhost.run":                                                      "",
		"http://plain.example.com":                                                       "",
		"":                                                                               "",
	} {
		if got := publicURL(line, "localhost.run"); got != want {
			t.Errorf("%q gave %q", line, got)
		}
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
