package hostconfig

import (
	"bytes"
	"os"
	"slices"
	"testing"
)

// withFlag makes an entry's arguments end with a flag, once.
func withFlag(args []string) []string {
	return append(slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "--x" }), "--x")
}

// The arguments of an entry that starts a relay change only if the command amends them, in
// every host; a second time nothing changes, and uninstalling restores the file.
func TestTheArgumentsOfARelayAreAmended(t *testing.T) {
	plain := Command{Path: "/opt/colab-relay", Args: []string{"serve"}}
	amended := Command{Path: plain.Path, Args: withFlag(plain.Args), Amend: withFlag}
	for _, h := range Hosts {
		u := user(t)
		before := "{\n  // mine\n}\n"
		if h.list == "" {
			before = "# mine\n"
		}
		path := put(t, h, u, before)
		args := func() []string {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			have, _, err := h.entry(text)
			if err != nil {
				t.Fatal(err)
			}
			return have.Args
		}
		for i, step := range []struct {
			c      Command
			want   []string
			change bool
		}{
			{plain, []string{"serve"}, true}, {amended, []string{"serve", "--x"}, true}, {amended, []string{"serve", "--x"}, false},
			{plain, []string{"serve", "--x"}, false}, {Command{Path: "/new/colab-relay", Args: plain.Args}, []string{"serve", "--x"}, true},
		} {
			change, err := Plan(target(h, u), step.c)
			if err != nil {
				t.Fatalf("%s, step %d: %v", h.Name, i, err)
			}
			if change.None() == step.change {
				t.Errorf("%s, step %d: changes %t", h.Name, i, !change.None())
			}
			if err := change.Write(); err != nil {
				t.Fatal(err)
			}
			if got := args(); !slices.Equal(got, step.want) {
				t.Errorf("%s, step %d: %q, want %q", h.Name, i, got, step.want)
			}
		}
		removal, err := PlanRemoval(target(h, u))
		if err != nil {
			t.Fatal(err)
		}
		if err := removal.Write(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, []byte(before)) {
			t.Errorf("%s: %q %v after the removal, want %q", h.Name, got, err, before)
		}
	}
}
