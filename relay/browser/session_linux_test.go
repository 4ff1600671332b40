package browser

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/tier"
)

func TestTheScreenOfAnAncestorIsUsed(t *testing.T) {
	desktop := []string{"HOME=/other", "DISPLAY=:1", "XAUTHORITY=/run/x", "SECRET=x", "XDG_RUNTIME_DIR=/run/user/7"}
	for name, c := range map[string]struct {
		own       []string
		ancestors [][]string
		want      []string
	}{
		"its own":              {[]string{"DISPLAY=:0"}, [][]string{desktop}, []string{"DISPLAY=:0"}},
		"the parent's":         {[]string{"HOME=/me"}, [][]string{desktop}, []string{"HOME=/me", "DISPLAY=:1", "XAUTHORITY=/run/x", "XDG_RUNTIME_DIR=/run/user/7"}},
		"a grandparent's":      {[]string{"DISPLAY="}, [][]string{{"HOME=/me"}, {"WAYLAND_DISPLAY=w"}, desktop}, []string{"DISPLAY=", "WAYLAND_DISPLAY=w"}},
		"an own value is kept": {[]string{"XAUTHORITY=/mine"}, [][]string{{"DISPLAY=:1", "XAUTHORITY=/run/x"}}, []string{"XAUTHORITY=/mine", "DISPLAY=:1"}},
		"a session over SSH":   {nil, [][]string{{"SSH_CONNECTION=a"}, desktop}, []string{"SSH_CONNECTION=a"}},
		"nobody's":             {[]string{"HOME=/me"}, [][]string{{"SECRET=x"}, nil}, []string{"HOME=/me"}},
	} {
		if got := withSession(c.own, slices.Values(c.ancestors)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestLookUpTakesTheLastValue(t *testing.T) {
	if got := lookUp([]string{"A=1", "AB=2", "A=3"}, "A"); got != "3" {
		t.Errorf("A is %q", got)
	}
}

// This test program, started again by a shell with a name of its own, without any variables, as
// some hosts start the relay.
func TestAncestorsOfAProcessWithoutAnEnvironment(t *testing.T) {
	tier.Long(t)
	if os.Getenv("SHOW_SESSION") != "" {
		fmt.Println("session", withSession([]string{"HOME=/me"}, ancestors()))
		return
	}
	shell := exec.Command("/bin/sh", "-c", `/usr/bin/env -i SHOW_SESSION=1 "$0" -test.run "$1"; true`, os.Args[0], "^TestAncestorsOfAProcess")
	shell.Env = []string{"DISPLAY=:77", "COLAB_SECRET=x"}
	text, err := shell.CombinedOutput()
	if err != nil || !strings.Contains(string(text), "session [HOME=/me DISPLAY=:77]") {
		t.Errorf("%v\n%s", err, text)
	}
}
