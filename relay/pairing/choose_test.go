package pairing

import (
	"testing"
)

func TestAChosenRuntimeIsTheDefault(t *testing.T) {
	dir, none := t.TempDir(), func(string) string { return "" }
	running, command := Open(dir), Open(dir)
	put(t, command, made(t, "a"), made(t, "b"), made(t, DefaultName))
	resolvesTo := func(want string) {
		t.Helper()
		if got, err := Resolve("", none, running); err != nil || got.Name != want {
			t.Errorf("got %v, %v; want %q", got.Name, err, want)
		}
	}
	choose := func(name string) {
		t.Helper()
		if err := command.Choose(name); err != nil {
			t.Fatal(err)
		}
	}
	resolvesTo(DefaultName)
	choose("a")
	resolvesTo("a")
	choose("b")
	resolvesTo("b")
	put(t, command, made(t, "b")) // pairing it again keeps the choice
	if _, _, _, err := command.Own("b", true); err != nil {
		t.Fatal(err)
	}
	resolvesTo("b")
	choose("")
	resolvesTo(DefaultName)
	choose("b")
	if err := command.Remove("b"); err != nil {
		t.Fatal(err)
	}
	resolvesTo(DefaultName)
	put(t, command, made(t, "b")) // a new pairing is not chosen
	resolvesTo(DefaultName)
}
