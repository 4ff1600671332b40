package ssh

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"colabrelay/executor/tunnel/tunneltest"
	server "colabrelay/shared/sshd"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// sshd is a real OpenSSH server on loopback, with its own keys and settings, run
// by an ordinary user. The tunnel reaches it over a wire that tests can cut.
type sshd struct {
	t      *testing.T
	dir    string // the server's files
	home   string // the tunnel's keys and known hosts
	user   string
	server string // what the tunnel dials: the wire
	wire   *tunneltest.Wire
	host   ssh.PublicKey
}

// startSSHD runs a server until the test has ended. Tests with it are long.
func startSSHD(t *testing.T) *sshd {
	t.Helper()
	tier.Long(t)
	program := server.Find(t)
	s := &sshd{t: t, home: t.TempDir()}
	s.makeDir()
	s.host = s.writeKey(filepath.Join(s.dir, "host_key"))
	if err := os.Mkdir(filepath.Join(s.home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.authorize(s.writeKey(filepath.Join(s.home, ".ssh", "id_ed25519")))
	address := tunneltest.FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	lines := append([]string{
		"AddressFamily inet", // or a forwarded port that is taken on 127.0.0.1 listens on ::1 alone
		"ListenAddress 127.0.0.1", "Port " + port, "HostKey " + filepath.Join(s.dir, "host_key"),
		"AuthorizedKeysFile " + filepath.Join(s.dir, "authorized_keys"), "StrictModes no", "UsePAM no", "PidFile none",
		"PasswordAuthentication no", "KbdInteractiveAuthentication no", "PrintMotd no", "MaxStartups 100",
	}, program.Settings()...)
	s.write(filepath.Join(s.dir, "config"), strings.Join(lines, "\n")+"\n")
	s.own()
	s.run(program, address)
	s.wire = tunneltest.NewWire(t, "127.0.0.1:0", address)
	s.server = s.user + "@" + s.wire.Addr
	s.know(s.host)
	return s
}

// makeDir makes a folder that the server's user can read, unlike t.TempDir.
func (s *sshd) makeDir() {
	dir, err := os.MkdirTemp("", "colab-relay-sshd-")
	if err != nil {
		s.t.Fatal(err)
	}
	s.dir = dir
	s.t.Cleanup(func() { os.RemoveAll(dir) })
}

// account is the user who runs the server and logs in to it: the current user,
// or daemon instead of root, for whom sshd would need a system user named sshd.
func account(t *testing.T) *user.User {
	t.Helper()
	who, err := user.Current()
	if err == nil && who.Uid == "0" {
		who, err = user.Lookup("daemon")
	}
	if err != nil {
		t.Fatal(err)
	}
	return who
}

func (s *sshd) own() {
	who := account(s.t)
	s.user = who.Username
	uid, _ := strconv.Atoi(who.Uid)
	files, err := filepath.Glob(filepath.Join(s.dir, "*"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, file := range append(files, s.dir) {
		if err := os.Chown(file, uid, -1); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *sshd) run(program server.Program, address string) {
	s.t.Helper()
	var output bytes.Buffer
	cmd := program.Command(filepath.Join(s.dir, "config"))
	cmd.Stderr = &output
	// Children of the server keep its log open, so the whole group is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() == 0 {
		who := account(s.t)
		uid, _ := strconv.Atoi(who.Uid)
		gid, _ := strconv.Atoi(who.Gid)
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatalf("start %q: %v", cmd.Path, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	s.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
		if s.t.Failed() {
			s.t.Logf("sshd printed:\n%s", output.String())
		}
	})
	within.Until(s.t, "sshd listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// config is the config of a tunnel that the server accepts.
func (s *sshd) config() Config { return Config{Server: s.server, Home: s.home} }

// authorize makes the server accept exactly these keys.
func (s *sshd) authorize(keys ...ssh.PublicKey) {
	var lines []byte
	for _, key := range keys {
		lines = append(lines, ssh.MarshalAuthorizedKey(key)...)
	}
	s.write(filepath.Join(s.dir, "authorized_keys"), string(lines))
}

func (s *sshd) knownHosts() string { return filepath.Join(s.home, ".ssh", "known_hosts") }

// know writes the key to the known hosts, under the wire's address.
func (s *sshd) know(key ssh.PublicKey) {
	s.write(s.knownHosts(), knownhosts.Line([]string{knownhosts.Normalize(s.wire.Addr)}, key)+"\n")
}

func (s *sshd) write(path, text string) {
	s.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// writeKey makes a key pair and writes its private key.
func (s *sshd) writeKey(path string) ssh.PublicKey {
	s.t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		s.t.Fatal(err)
	}
	s.write(path, string(pem.EncodeToMemory(block)))
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		s.t.Fatal(err)
	}
	return key
}
