package pairing

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/auth"
)

func TestAMachineReachedBySSHIsStillOneInTheNextProgram(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{"lab": "`colab-relay ssh lab`", "gpu": "`colab-relay ssh lab --name gpu`"} {
		if _, err := Open(dir).Put(Runtime{Name: name, URL: "http://127.0.0.1:20000", Secret: auth.GenerateSecret(), SSHHost: "lab"}); err != nil {
			t.Fatal(err)
		}
		read, err := Open(dir).Get(name)
		if err != nil || read.SSHHost != "lab" || !strings.Contains(read.Comeback(), want) {
			t.Errorf("%s: %+v, %v: %s", name, read, err, read.Comeback())
		}
	}
	if next := (Runtime{Name: "colab", URL: "https://x"}).Comeback(); next != "" {
		t.Errorf("another runtime has the next step %q", next)
	}
}

func TestAMachineIsNamedAfterItsHost(t *testing.T) {
	for address, want := range map[string]string{
		"lab": "lab", "me@gpu.example.org": "gpu.example.org", "ssh://me@host:2222": "host", "ssh://host:22": "host",
		"10.0.0.5": "10.0.0.5", "fe80::1%eth0": "fe80-1-eth0", "a@b@c": "c",
	} {
		if got := NameOfHost(address); got != want {
			t.Errorf("%s is named %q, want %q", address, got, want)
		} else if err := CheckName(got); err != nil {
			t.Error(err)
		}
	}
}

func TestTheCommandThatComesBackHasItsArguments(t *testing.T) {
	s := Open(t.TempDir())
	r := Runtime{Name: "gpu", URL: "http://127.0.0.1:20000", Secret: auth.GenerateSecret(), SSHHost: "me@lab",
		SSHArguments: []string{"--python", "~/my env/bin/python", "--", "-F", "/etc/lab's", "-p", "22"}}
	put(t, s, r)
	read, err := Open(s.dir).Get("gpu")
	if want := `me@lab --stop --name gpu --python '~/my env/bin/python' -- -F '/etc/lab'\''s' -p 22`; err != nil || runtime.GOOS != "windows" && read.SSHCommand("--stop") != "colab-relay ssh "+want {
		t.Errorf("it is %s, want %s (%v)", read.SSHCommand("--stop"), want, err)
	}
	if !strings.Contains(read.Comeback(), "`"+r.SSHCommand()+"`") {
		t.Errorf("the next step is %s", read.Comeback())
	}
	put(t, s, made(t, "other"))
	if read, err = s.Get("gpu"); err != nil || !slices.Equal(read.SSHArguments, r.SSHArguments) {
		t.Errorf("after a change of another runtime they are %q, %v", read.SSHArguments, err)
	}
}
