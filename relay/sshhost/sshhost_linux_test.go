package sshhost

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/crypto/ssh"

	"colabrelay/relay/pairing"
	"colabrelay/relay/vm"
	"colabrelay/shared/auth"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/freeport"
	"colabrelay/shared/privileged"
	"colabrelay/shared/sshd"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
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

// laptop is a computer with the relay.
type laptop struct {
	t    *testing.T
	bin  harness.Binaries
	home string
	box  *box
}

func (l *laptop) command(args ...string) *exec.Cmd {
	cmd := exec.Command(l.bin.Relay, args...)
	cmd.Env = []string{"HOME=" + l.home, "XDG_CONFIG_HOME=" + l.home + "/config", "PATH=" + os.Getenv("PATH")}
	return cmd
}

// relay runs a command and returns what it printed.
func (l *laptop) relay(args ...string) string {
	l.t.Helper()
	out, err := l.command(args...).CombinedOutput()
	if err != nil {
		l.t.Fatalf("colab-relay %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (l *laptop) pairing() pairing.Runtime {
	l.t.Helper()
	r, err := pairing.Open(filepath.Join(l.home, "config", "colab-relay")).Get("box")
	must(l.t, err)
	return r
}

// holder is a `colab-relay ssh` that holds a connection.
type holder struct {
	t     *testing.T
	cmd   *exec.Cmd
	out   harness.Output
	ended chan struct{}
}

// ssh starts `colab-relay ssh box`, and returns when it is connected.
func (l *laptop) ssh(args ...string) *holder {
	l.t.Helper()
	h := &holder{t: l.t, ended: make(chan struct{})}
	h.cmd = l.command(append(append([]string{"ssh", "box"}, args...), "--", "-F", l.box.config)...)
	h.cmd.Stdout, h.cmd.Stderr = &h.out, &h.out
	must(l.t, h.cmd.Start())
	go func() {
		defer close(h.ended)
		_ = h.cmd.Wait()
	}()
	l.t.Cleanup(func() {
		_ = h.cmd.Process.Kill()
		<-h.ended
		if l.t.Failed() {
			l.t.Logf("colab-relay ssh printed:\n%s", h.out.String())
		}
	})
	h.shows("Connected: runtime \"box\"")
	return h
}

func (h *holder) shows(want string) {
	h.t.Helper()
	within.Until(h.t, "it shows "+want, func() bool {
		select {
		case <-h.ended:
			if !strings.Contains(h.out.String(), want) {
				h.t.Fatalf("it ended:\n%s", h.out.String())
			}
		default:
		}
		return strings.Contains(h.out.String(), want)
	})
}

// interrupt presses Ctrl-C.
func (h *holder) interrupt() {
	h.t.Helper()
	must(h.t, h.cmd.Process.Signal(syscall.SIGINT))
	<-h.ended
	if code := h.cmd.ProcessState.ExitCode(); code != 0 {
		h.t.Errorf("after Ctrl-C the exit code is %d", code)
	}
}

func TestAMachineIsConnectedLeftAndFoundAgain(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	l := &laptop{t, built(t), t.TempDir(), newBox(t)}
	h := l.ssh("--executor", l.bin.Executor, "--python", stacks.Old(t).Python)
	first := l.pairing()
	run := func(code string) string {
		t.Helper()
		out, err := l.command("run", "--runtime", "box", "-c", code).Output()
		if err != nil {
			t.Fatalf("%s: %v", code, err)
		}
		return strings.TrimSpace(string(out))
	}
	if got := run("kept = 'kept'; print(6 * 7)"); got != "42" {
		t.Errorf("the run prints %q", got)
	}
	if got := run("import os; print(os.getcwd())"); got != l.box.home {
		t.Errorf("code runs in %q", got)
	}
	if found := processes(first.Secret.Reveal()); len(found) != 0 {
		t.Errorf("the secret is in the arguments of %v", found)
	}
	if out := l.relay("ssh", "box", "--", "-F", l.box.config); !strings.Contains(out, "connected already") {
		t.Errorf("a second one prints:\n%s", out)
	}

	for _, pid := range processes("-L " + strings.TrimPrefix(first.URL, "http://")) {
		must(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	h.shows("was lost and is back")
	if got := run("print(kept)"); got != "kept" || l.pairing().URL != first.URL {
		t.Errorf("after the loss, the run prints %q, at %s (was %s)", got, l.pairing().URL, first.URL)
	}

	h.interrupt()
	if !strings.Contains(h.out.String(), "goes on") {
		t.Errorf("after Ctrl-C it shows:\n%s", h.out.String())
	}
	h = l.ssh("--python", stacks.Old(t).Python) // needs no executor any more
	if got := run("print(kept)"); got != "kept" || !strings.Contains(h.out.String(), "has been running since an earlier call") || !l.pairing().Secret.Equal(first.Secret) {
		t.Errorf("the second time, the run prints %q, and it shows:\n%s", got, h.out.String())
	}
	h.interrupt()

	out := l.relay("ssh", "box", "--stop", "--python", stacks.Old(t).Python, "--", "-F", l.box.config)
	if !strings.Contains(out, "has ended") || !strings.Contains(out, l.box.home) {
		t.Errorf("--stop prints:\n%s", out)
	}
	if found := processes(l.box.home + "/.local/share/colab-relay"); len(found) != 0 {
		t.Errorf("%v still run", found)
	}
	out = l.relay("ssh", "box", "--stop", "--python", stacks.Old(t).Python, "--", "-F", l.box.config)
	if !strings.Contains(out, "No executor of") {
		t.Errorf("a second --stop prints:\n%s", out)
	}
	comeback := "`colab-relay ssh box --python " + stacks.Old(t).Python + " -- -F " + l.box.config + "`"
	for _, args := range [][]string{{"run", "--runtime", "box", "-c", "1"}, {"status"}, {"doctor"}} {
		failed, err := l.command(args...).CombinedOutput()
		if err == nil || !strings.Contains(string(failed), comeback) || strings.Contains(string(failed), "cell") {
			t.Errorf("without the connection, %s prints, without %s:\n%s", args[0], comeback, failed)
		}
	}
}

func TestAMachineThatIsNotTrustedIsNotUsed(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	b, store := newBox(t), pairing.Open(t.TempDir())
	must(t, os.WriteFile(b.known, nil, 0o600))
	h, err := New(Config{Address: "box", Options: []string{"-F", b.config}, Name: "box", Python: stacks.Old(t).Python, WorkDir: ".", Store: store})
	must(t, err)
	if err := h.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Host key verification failed") {
		t.Errorf("error is %v", err)
	}
	if all, err := store.List(); len(all) != 0 || err != nil {
		t.Errorf("it left the pairings %v, %v", all, err)
	}
}

func TestANameOfAnotherRuntimeIsRefused(t *testing.T) {
	store := pairing.Open(t.TempDir())
	for _, r := range []pairing.Runtime{
		{Name: "colab", URL: "https://x.ngrok-free.app", Secret: auth.GenerateSecret()},
		{Name: "other", URL: "http://127.0.0.1:20000", Secret: auth.GenerateSecret(), SSHHost: "elsewhere"},
	} {
		_, err := store.Put(r)
		must(t, err)
		h, err := New(Config{Address: "box", Name: r.Name, Store: store})
		must(t, err)
		if err := h.Run(t.Context()); !errors.Is(err, ErrName) || !strings.Contains(err.Error(), "--name") {
			t.Errorf("%s: error is %v", r.Name, err)
		}
		if _, _, err := h.Stop(t.Context()); !errors.Is(err, ErrName) {
			t.Errorf("%s: stop: error is %v", r.Name, err)
		}
	}
}

// A ProxyCommand of the person may need cloud credentials, and an agent its socket. Nothing
// needs the relay's settings.
func TestSSHGetsNoSettingsOfTheRelay(t *testing.T) {
	for _, name := range []string{"COLAB_SECRET", "NGROK_AUTHTOKEN", "RELAY_SECRET", "EXECUTOR_SECRET", "AWS_PROFILE", "SSH_AUTH_SOCK"} {
		t.Setenv(name, "x")
	}
	env := (&Host{Config{Address: "box"}}).ssh(t.Context(), nil).Env
	for name, want := range map[string]bool{
		"COLAB_SECRET": false, "NGROK_AUTHTOKEN": false, "RELAY_SECRET": false, "EXECUTOR_SECRET": false, "AWS_PROFILE": true, "SSH_AUTH_SOCK": true, "PATH": true,
	} {
		if got := slices.ContainsFunc(env, func(entry string) bool { return strings.HasPrefix(entry, name+"=") }); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
}

func TestAnAddressCannotBeAnOptionOfSSH(t *testing.T) {
	for _, address := range []string{"-oProxyCommand=touch x", "", "a b", "a\nb"} {
		if _, err := New(Config{Address: address, Name: "box"}); err == nil {
			t.Errorf("%q is accepted", address)
		}
	}
}

// The machine names its Python, so a person who copies the command must not run words of it here.
func TestCommandsForThePersonHaveTheirOptionsOfSSHAndAreQuoted(t *testing.T) {
	h := &Host{Config{Address: "me@box", Options: []string{"-F", "/my config", "-p", "22"}}}
	for python, want := range map[string]string{
		"/usr/bin/python3":  "`ssh -F '/my config' -p 22 -- me@box '/usr/bin/python3 -m ",
		"/x'; rm -rf ~ #/p": `me@box ''\''/x'\''\'\'''\''; rm -rf ~ #/p'\'' -m `,
	} {
		for _, managed := range []bool{false, true} {
			if err := h.noKernel(machine{Python: python, Managed: managed}); !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %s:\n%v", want, err)
			}
		}
	}
}

func TestPathsAreQuotedForTheMachinesShell(t *testing.T) {
	for path, want := range map[string]string{
		"python3": "'python3'", "~/my env/bin/python": "~/'my env/bin/python'", "a'b; rm -rf $HOME": `'a'\''b; rm -rf $HOME'`,
	} {
		if got := shellWord(path); got != want {
			t.Errorf("%s is quoted as %s, want %s", path, got, want)
		}
	}
}

// What a machine answers selects no address but its own.
func TestOnlyAPortOfTheMachineItselfIsForwarded(t *testing.T) {
	if port, err := vm.LocalPort("http://127.0.0.1:8123"); port != 8123 || err != nil {
		t.Errorf("%d %v", port, err)
	}
	for _, address := range []string{"http://10.0.0.1:80", "http://127.0.0.1", "http://127.0.0.1:0", "https://127.0.0.1:1", "http://evil:80", "http://127.0.0.1:1:10.0.0.1:2", "", "\x1b[2J"} {
		if port, err := vm.LocalPort(address); err == nil {
			t.Errorf("%q is the port %d", address, port)
		}
	}
}
