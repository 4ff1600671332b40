package sshhost

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"colabrelay/relay/pairing"
	"colabrelay/relay/vm"
	"colabrelay/shared/auth"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/privileged"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// host returns a Host of the machine, and what it says. change may alter its settings.
func (b *box) host(change func(*Config)) (*Host, *harness.Output, *pairing.Store) {
	b.t.Helper()
	said, store := &harness.Output{}, pairing.Open(b.t.TempDir())
	cfg := Config{
		Address: "box", Options: []string{"-F", b.config}, Name: "box", Python: stacks.Old(b.t).Python, WorkDir: ".", Version: "e2e",
		Store: store, Check: 50 * time.Millisecond, Delay: 10 * time.Millisecond,
		Program: func(_ context.Context, arch string) (vm.Program, error) {
			return vm.FileProgram(os.Getenv("TEST_EXECUTOR"), arch)
		},
		Say:       func(line string) { _, _ = said.Write([]byte(line + "\n")) },
		Connected: func(pairing.Runtime) { _, _ = said.Write([]byte("connected\n")) },
	}
	if change != nil {
		change(&cfg)
	}
	h, err := New(cfg)
	must(b.t, err)
	return h, said, store
}

// script writes a program that stands in for a Python or uname of the machine.
func (b *box) script(name, text string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	must(b.t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	return path
}

// fails expects that Run fails in this way, and leaves no pairing.
func (b *box) fails(change func(*Config), is error, says ...string) {
	b.t.Helper()
	h, _, store := b.host(change)
	err := h.Run(b.t.Context())
	if err == nil || is != nil && !errors.Is(err, is) {
		b.t.Errorf("error is %v, want %v", err, is)
		return
	}
	for _, part := range says {
		if !strings.Contains(err.Error(), part) {
			b.t.Errorf("error is %v; it does not say %q", err, part)
		}
	}
	if all, err := store.List(); len(all) != 0 || err != nil {
		b.t.Errorf("it left the pairings %v, %v", all, err)
	}
}

func TestAMachineThatCannotRunTheExecutorIsNamedWithWhatToDo(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	t.Setenv("TEST_EXECUTOR", builtExecutor(t))
	python := stacks.Old(t).Python
	b := newBox(t)

	b.fails(func(c *Config) { c.Python = "/no/such/python" }, nil, "box has no Python", "--python PATH")
	bare := filepath.Join(b.dir, "bare")
	if out, err := exec.Command(python, "-m", "venv", "--without-pip", bare).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b.fails(func(c *Config) { c.Python = bare + "/bin/python" }, ErrRefused, "no ipykernel", "ssh -F "+b.config+" -- box '"+bare+"/bin/python -m pip install ipykernel'", "--python PATH")
	b.fails(func(c *Config) { c.Python = b.script("python32", "exec setarch i686 "+python+` "$@"`) }, ErrRefused, `"i686"`, "x86_64 and aarch64")
	b.fails(func(c *Config) { c.Python = b.script("shell", "exec sleep 0") }, nil, "ended early")
	b.fails(func(c *Config) { c.WorkDir = "no/such/folder" }, nil, "no such folder", "--workdir")
	b.fails(func(c *Config) {
		c.Program = func(_ context.Context, arch string) (vm.Program, error) { return vm.FileProgram("/bin/false", arch) }
	}, ErrLaunch)
}

func TestADiskThatIsFullAndAHomeThatIsClosedAreNamed(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	t.Setenv("TEST_EXECUTOR", builtExecutor(t))
	b := newBox(t)
	must(t, os.Chown(b.home, 0, 0))
	must(t, os.Chmod(b.home, 0o755))
	b.fails(nil, nil, "Permission denied", "must be writable")
	must(t, syscall.Mount("none", b.home, "tmpfs", 0, "size=1m,mode=0777"))
	defer func() { _ = syscall.Unmount(b.home, syscall.MNT_DETACH) }()
	b.fails(nil, nil, "No space left", "free some space")
}

func TestAMachineThatIsNotReachedOrNotTrustedIsNotUsed(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	b := newBox(t)
	port := func(c *Config) { c.Options = append([]string{"-p", "1"}, c.Options...) }
	b.fails(port, nil, "ssh could not connect to box", "Connection refused")
	key := func(c *Config) { c.Options = append([]string{"-o", "IdentityFile=" + b.dir + "/other"}, c.Options...) }
	b.key("other")
	must(t, os.Remove(b.dir+"/id"))
	b.fails(key, nil, "ssh could not connect to box", "Permission denied")
	must(t, os.WriteFile(b.known, nil, 0o600))
	b.fails(nil, nil, "ssh could not connect to box", "Host key verification failed")
}

func TestAMachineWithAnotherSystemOrShellIsNamed(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	t.Run("macOS", func(t *testing.T) {
		dir := t.TempDir()
		must(t, os.Chmod(filepath.Dir(dir), 0o755))
		must(t, os.Chmod(dir, 0o755))
		must(t, os.WriteFile(dir+"/uname", []byte("#!/bin/sh\necho Darwin arm64\n"), 0o755))
		b := newBox(t, "SetEnv PATH="+dir+":/usr/bin:/bin")
		b.fails(func(c *Config) { c.Python = "/bin/false" }, nil, "no Linux machine", "Darwin arm64")
	})
	t.Run("no shell", func(t *testing.T) {
		newBox(t, "ForceCommand /bin/false").fails(nil, nil, "did not answer as a Linux machine", " -- box uname`")
	})
	t.Run("endless words", func(t *testing.T) { newBox(t, "ForceCommand yes").fails(nil, nil, "did not answer as a Linux machine") })
	t.Run("no forwarding", func(t *testing.T) {
		t.Setenv("TEST_EXECUTOR", builtExecutor(t))
		b := newBox(t, "AllowTcpForwarding no")
		h, _, _ := b.host(nil)
		if err := h.Run(t.Context()); !errors.Is(err, errSilent) || !strings.Contains(err.Error(), "AllowTcpForwarding") {
			t.Errorf("error is %v", err)
		}
	})
}

// A program on this computer takes the port while the machine is away, the pairing follows; then
// the executor ends, and the holder with it.
func TestTheHolderTakesAnotherPortAndEndsWithTheExecutor(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	t.Setenv("TEST_EXECUTOR", builtExecutor(t))
	b := newBox(t)
	h, said, store := b.host(nil)
	ended := make(chan error, 1)
	go func() { ended <- h.Run(t.Context()) }()
	within.Until(t, "connected", func() bool { return strings.Contains(said.String(), "connected\n") })
	first, err := store.Get("box")
	must(t, err)

	known, err := os.ReadFile(b.known)
	must(t, err)
	must(t, os.WriteFile(b.known, nil, 0o600)) // no login until it is written again
	for _, pid := range processes(forwarding(first, 0)[:len("127.0.0.1:20000")]) {
		must(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	within.Until(t, "lost", func() bool { return strings.Contains(said.String(), "is lost (ssh could not connect") })
	taken := listen(t, first.URL)
	must(t, os.WriteFile(b.known, known, 0o600))
	within.Until(t, "back", func() bool { return strings.Contains(said.String(), "was lost and is back") })
	taken.Close()
	second, err := store.Get("box")
	if err != nil || second.URL == first.URL || !second.Secret.Equal(first.Secret) {
		t.Errorf("the pairing was %v and is %v, %v\n%s", first, second, err, said)
	}
	if _, err := answers(t.Context(), second); err != nil {
		t.Errorf("at its new address: %v", err)
	}

	if ran, folder, err := h.Stop(t.Context()); !ran || !strings.HasPrefix(folder, b.home) || err != nil {
		t.Errorf("stop: %t %s %v", ran, folder, err)
	}
	if err := <-ended; !errors.Is(err, ErrEnded) {
		t.Errorf("the holder ended with %v\n%s", err, said)
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

func TestWithoutSSHItSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := New(Config{Address: "box", Name: "box"}); !errors.Is(err, ErrNoSSH) || !strings.Contains(err.Error(), "openssh-client") {
		t.Errorf("error is %v", err)
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
	if port, err := portOf("http://127.0.0.1:8123"); port != 8123 || err != nil {
		t.Errorf("%d %v", port, err)
	}
	for _, address := range []string{"http://10.0.0.1:80", "http://127.0.0.1", "http://127.0.0.1:0", "https://127.0.0.1:1", "http://evil:80", "http://127.0.0.1:1:10.0.0.1:2", "", "\x1b[2J"} {
		if port, err := portOf(address); err == nil {
			t.Errorf("%q is the port %d", address, port)
		}
	}
}

func TestALongLineOfSSHIsBounded(t *testing.T) {
	shown := 0
	l := &lines{show: func(line string) { shown += len(line) }}
	for range 100 {
		_, _ = l.Write([]byte(strings.Repeat("x", maxLine)))
	}
	_, _ = l.Write([]byte("\n\x1b[31mlast\n"))
	if len(l.part) > maxLine || shown > maxShown || l.last() != "last" {
		t.Errorf("%d bytes are kept, %d shown, the last line is %q", len(l.part), shown, l.last())
	}
}
