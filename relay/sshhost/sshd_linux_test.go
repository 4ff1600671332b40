package sshhost

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/crypto/ssh"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/freeport"
	"colabrelay/shared/sshd"
	"colabrelay/shared/within"
)

// daemonID is the user and group of the machine's account, daemon: every Linux has it. Tests
// give it a shell and a home folder in their own mount namespace.
const daemonID = 1

// box is a machine with a real OpenSSH server on loopback.
type box struct {
	t      *testing.T
	dir    string // the server's files
	home   string // of the account
	config string // for ssh -F; the machine's name in it is box
	known  string // the known hosts
	group  int    // the server's process group
}

// newBox starts a machine.
func newBox(t *testing.T) *box {
	t.Helper()
	dir, err := os.MkdirTemp("", "colab-relay-box-") // which the account can enter, unlike t.TempDir
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	b := &box{t: t, dir: dir, home: filepath.Join(dir, "home"), config: filepath.Join(dir, "client"), known: filepath.Join(dir, "known_hosts")}
	must(t, os.Mkdir(b.home, 0o700))
	must(t, os.Chown(b.home, daemonID, daemonID))
	b.account()
	address, err := freeport.Address()
	must(t, err)
	_, port, _ := net.SplitHostPort(address)
	host, own := b.key("host_key"), b.key("id")
	b.write("authorized_keys", string(ssh.MarshalAuthorizedKey(own)))
	b.write("known_hosts", fmt.Sprintf("[127.0.0.1]:%s %s", port, ssh.MarshalAuthorizedKey(host)))
	program := sshd.Find(t)
	b.write("server", strings.Join(append(program.Settings(),
		"ListenAddress 127.0.0.1", "Port "+port, "HostKey "+dir+"/host_key", "AuthorizedKeysFile "+dir+"/authorized_keys", "StrictModes no",
		"UsePAM no", "PidFile none", "PasswordAuthentication no", "KbdInteractiveAuthentication no", "PrintMotd no", "PrintLastLog no", "MaxStartups 100"), "\n")+"\n")
	b.write("client", fmt.Sprintf("Host box\n HostName 127.0.0.1\n Port %s\n User daemon\n IdentityFile %s/id\n IdentitiesOnly yes\n UserKnownHostsFile %s\n GlobalKnownHostsFile none\n BatchMode yes\n", port, dir, b.known))
	for _, file := range []string{"host_key", "authorized_keys", "server"} {
		must(t, os.Chown(filepath.Join(dir, file), daemonID, daemonID))
	}
	b.serve(program, address)
	return b
}

func (b *box) write(name, text string) {
	b.t.Helper()
	must(b.t, os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o600))
}

func (b *box) key(name string) ssh.PublicKey {
	b.t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	must(b.t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	must(b.t, err)
	b.write(name, string(pem.EncodeToMemory(block)))
	key, err := ssh.NewPublicKey(public)
	must(b.t, err)
	return key
}

// account gives daemon this machine's home folder, and a shell, in this mount namespace.
func (b *box) account() {
	b.t.Helper()
	text, err := os.ReadFile("/etc/passwd")
	must(b.t, err)
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "daemon:") {
			lines[i] = fmt.Sprintf("daemon:x:%d:%d:daemon:%s:/bin/sh", daemonID, daemonID, b.home)
		}
	}
	b.write("passwd", strings.Join(lines, "\n"))
	must(b.t, os.Chmod(b.dir+"/passwd", 0o644))
	must(b.t, syscall.Mount(b.dir+"/passwd", "/etc/passwd", "", syscall.MS_BIND, ""))
	b.t.Cleanup(func() { _ = syscall.Unmount("/etc/passwd", syscall.MNT_DETACH) })
}

func (b *box) serve(program sshd.Program, address string) {
	b.t.Helper()
	cmd := program.Command(b.dir + "/server")
	cmd.Env = append(cmd.Env, "PATH=/usr/local/bin:/usr/bin:/bin")
	var output bytes.Buffer
	cmd.Stderr = &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{Uid: daemonID, Gid: daemonID}}
	must(b.t, cmd.Start())
	b.group = cmd.Process.Pid
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	b.t.Cleanup(func() {
		b.endAll()
		_ = syscall.Kill(-b.group, syscall.SIGKILL)
		<-ended
		if b.t.Failed() {
			b.t.Logf("sshd printed:\n%s", output.String())
		}
	})
	within.Until(b.t, "sshd listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// endAll kills what runs in the machine's home folder: executors are in sessions of their own.
func (b *box) endAll() {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, b.home+"/") {
			var pid int
			fmt.Sscanf(link, "/proc/%d/exe", &pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// processes returns those with this in their command line.
func processes(text string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err == nil && strings.Contains(strings.ReplaceAll(string(line), "\x00", " "), text) {
			var pid int
			fmt.Sscanf(file, "/proc/%d/cmdline", &pid)
			pids = append(pids, pid)
		}
	}
	return pids
}

// built are the real programs.
func built(t *testing.T) harness.Binaries {
	t.Helper()
	programs, err := harness.Build(t.Context(), t.TempDir())
	must(t, err)
	return programs
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
