package pairing

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"colabrelay/shared/auth"
)

func TestALifeIsKeptForTheNextRelay(t *testing.T) {
	dir := t.TempDir()
	s := Open(dir)
	if s.Life("a") != (Life{}) {
		t.Error("a life before any was seen")
	}
	if _, err := os.Stat(filepath.Join(dir, lockName)); err == nil {
		t.Error("asking made files")
	}
	seen := Life{InstanceID: "i", KernelID: "k", Since: time.Unix(1e9, 0).UTC()}
	if err := s.Saw("a", seen); err != nil {
		t.Fatal(err)
	}
	if got := Open(dir).Life("a"); got != seen {
		t.Errorf("%+v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, livesName), []byte("{rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s.Life("a") != (Life{}) {
		t.Error("a damaged file tells a life")
	}
	if err := s.Saw("b", seen); err != nil || s.Life("b") != seen {
		t.Errorf("a damaged file is for good: %v", err)
	}
}

func TestLivesAreBoundedAndTheOldestGoes(t *testing.T) {
	s := Open(t.TempDir())
	lives := map[string]Life{}
	for i := range maxLives {
		lives[fmt.Sprint(i)] = Life{KernelID: "k", Since: time.Unix(int64(i+1), 0)}
	}
	unlock, err := s.own()
	if err != nil {
		t.Fatal(err)
	}
	err = s.writeLives(lives)
	unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Saw("new", Life{KernelID: "k", Since: time.Unix(1e9, 0)}); err != nil {
		t.Fatal(err)
	}
	if s.Life("0") != (Life{}) || s.Life("1").KernelID == "" || s.Life("new").KernelID == "" {
		t.Error("another one than the oldest went")
	}
}

func TestManyRelaysKeepLivesAtOnce(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if err := Open(dir).Saw(fmt.Sprint(i), Life{KernelID: "k"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i := range 20 {
		if Open(dir).Life(fmt.Sprint(i)).KernelID == "" {
			t.Errorf("%d is lost", i)
		}
	}
}

func TestEachSecretOfTheEnvironmentIsARuntimeOfItsOwn(t *testing.T) {
	a, b := Runtime{Name: EnvName, Secret: auth.GenerateSecret()}, Runtime{Name: EnvName, Secret: auth.GenerateSecret()}
	if a.Key() == b.Key() || a.Key() == (Runtime{Name: "env"}).Name {
		t.Errorf("%q %q", a.Key(), b.Key())
	}
	if p := made(t, "a"); p.Key() != "a" {
		t.Errorf("%q", p.Key())
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
		if err := s.Saw(r.Key(), Life{KernelID: "k"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Remove("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get("a"); !errors.Is(err, ErrNotPaired) || s.Life("a") != (Life{}) {
		t.Errorf("still there: %v %+v", err, s.Life("a"))
	}
	if got, err := s.Get("b"); err != nil || !same(got, b) || s.Life("b").KernelID != "k" {
		t.Errorf("another one went: %v", err)
	}
	if err := s.Remove("a"); !errors.Is(err, ErrNotPaired) {
		t.Errorf("a second time: %v", err)
	}
}
