package pairing

import (
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/auth"
)

func TestTheCommandThatComesBackHasItsArguments(t *testing.T) {
	s := Open(t.TempDir())
	r := Runtime{Name: "gpu", URL: "http://127.0.0.1:20000", Secret: auth.GenerateSecret(), SSHHost: "me@lab",
		SSHArguments: []string{"--python", "~/my env/bin/python", "--", "-F", "/etc/lab's", "-p", "22"}}
	put(t, s, r)
	read, err := Open(filepath.Dir(s.Path())).Get("gpu")
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
