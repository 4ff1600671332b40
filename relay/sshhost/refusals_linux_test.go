package sshhost

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"colabrelay/relay/pairing"
	"colabrelay/shared/auth"
	"colabrelay/shared/privileged"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

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
	if port, err := portOf("http://127.0.0.1:8123"); port != 8123 || err != nil {
		t.Errorf("%d %v", port, err)
	}
	for _, address := range []string{"http://10.0.0.1:80", "http://127.0.0.1", "http://127.0.0.1:0", "https://127.0.0.1:1", "http://evil:80", "http://127.0.0.1:1:10.0.0.1:2", "", "\x1b[2J"} {
		if port, err := portOf(address); err == nil {
			t.Errorf("%q is the port %d", address, port)
		}
	}
}
