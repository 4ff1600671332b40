package pairing

import (
	"errors"
	"strings"
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

func TestTheEnvironmentComesBeforeTheChosenRuntime(t *testing.T) {
	s := Open(t.TempDir())
	put(t, s, made(t, "a"))
	if err := s.Choose("a"); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"COLAB_URL": "https://e", "COLAB_SECRET": envSecret}
	if got, err := Resolve("", func(key string) string { return env[key] }, s); err != nil || got.Name != EnvName {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestChooseRefusesWhatIsNotPaired(t *testing.T) {
	s := Open(t.TempDir())
	put(t, s, made(t, "gpu-lab"), made(t, "b"))
	err := s.Choose("gpu-lba")
	if !errors.Is(err, ErrNotPaired) || !strings.Contains(err.Error(), `did you mean "gpu-lab"?`) {
		t.Errorf("got %v", err)
	}
	if err := s.Choose(EnvName); !errors.Is(err, ErrNotPaired) {
		t.Errorf("got %v", err)
	}
}
