package browser

import (
	"slices"
	"testing"
)

func TestTheScreenOfAnAncestorIsUsed(t *testing.T) {
	desktop := []string{"HOME=/other", "DISPLAY=:1", "XAUTHORITY=/run/x", "SECRET=x", "XDG_RUNTIME_DIR=/run/user/7"}
	for name, c := range map[string]struct {
		own       []string
		ancestors [][]string
		want      []string
	}{
		"the parent's":         {[]string{"HOME=/me"}, [][]string{desktop}, []string{"HOME=/me", "DISPLAY=:1", "XAUTHORITY=/run/x", "XDG_RUNTIME_DIR=/run/user/7"}},
		"a grandparent's":      {[]string{"DISPLAY="}, [][]string{{"HOME=/me"}, {"WAYLAND_DISPLAY=w"}, desktop}, []string{"DISPLAY=", "WAYLAND_DISPLAY=w"}},
		"an own value is kept": {[]string{"XAUTHORITY=/mine"}, [][]string{{"DISPLAY=:1", "XAUTHORITY=/run/x"}}, []string{"XAUTHORITY=/mine", "DISPLAY=:1"}},
		"a session over SSH":   {nil, [][]string{{"SSH_CONNECTION=a"}, desktop}, []string{"SSH_CONNECTION=a"}},
	} {
		if got := withSession(c.own, slices.Values(c.ancestors)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
