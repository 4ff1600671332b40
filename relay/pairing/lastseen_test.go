package pairing

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestLastSeenIsKeptForTheNextRelay(t *testing.T) {
	dir := t.TempDir()
	s := Open(dir)
	if s.LastSeen("a") != (LastSeen{}) {
		t.Error("something was seen before the first SaveLastSeen")
	}
	if _, err := os.Stat(filepath.Join(dir, "lives.lock")); err == nil {
		t.Error("reading created files")
	}
	seen := LastSeen{InstanceID: "i", KernelID: "k", Since: time.Unix(1e9, 0).UTC()}
	if err := s.SaveLastSeen("a", seen); err != nil {
		t.Fatal(err)
	}
	if got := Open(dir).LastSeen("a"); got != seen {
		t.Errorf("%+v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "lives.json"), []byte("{rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s.LastSeen("a") != (LastSeen{}) {
		t.Error("a damaged file was used")
	}
	if err := s.SaveLastSeen("b", seen); err != nil || s.LastSeen("b") != seen {
		t.Errorf("a damaged file was not replaced: %v", err)
	}
}

func TestARemovedRuntimeIsForgotten(t *testing.T) {
	s := Open(t.TempDir())
	if err := s.Remove("a"); !errors.Is(err, ErrNotPaired) {
		t.Errorf("nothing paired: %v", err)
	}
	a, b := made(t, "a"), made(t, "b")
	put(t, s, a, b)
	for _, r := range []Runtime{a, b} {
		if err := s.SaveLastSeen(r.Key(), LastSeen{KernelID: "k"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Remove("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get("a"); !errors.Is(err, ErrNotPaired) || s.LastSeen("a") != (LastSeen{}) {
		t.Errorf("not removed: %v %+v", err, s.LastSeen("a"))
	}
	if got, err := s.Get("b"); err != nil || !same(got, b) || s.LastSeen("b").KernelID != "k" {
		t.Errorf("the other runtime was removed: %v", err)
	}
	if err := s.Remove("a"); !errors.Is(err, ErrNotPaired) {
		t.Errorf("removed twice: %v", err)
	}
}
