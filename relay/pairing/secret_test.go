package pairing

import (
	"errors"
	"path/filepath"
	"testing"
)

func own(t *testing.T, s *Store, name string, rotate bool, want Origin) Runtime {
	t.Helper()
	r, origin, before, err := s.Own(name, rotate)
	if err != nil || origin != want || before.Damage != nil || r.Name != name || r.Secret.IsZero() {
		t.Fatalf("%s: %+v, origin %d, %v, %v", name, r, origin, before.Damage, err)
	}
	return r
}

func TestEachRuntimeHasItsOwnSecret(t *testing.T) {
	s := Open(filepath.Join(t.TempDir(), "made"))
	a, b := own(t, s, "a", false, Made), own(t, s, "b", false, Made)
	if a.Secret.Equal(b.Secret) || a.URL != "" {
		t.Errorf("%+v, %+v", a, b)
	}
	if again := own(t, s, "a", false, Kept); !again.Secret.Equal(a.Secret) {
		t.Error("the second call made another secret")
	}
	if secret, err := s.SecretOf("b"); err != nil || !secret.Equal(b.Secret) {
		t.Errorf("%v", err)
	}
	if _, err := s.SecretOf("c"); !errors.Is(err, ErrNoSecret) {
		t.Errorf("%v", err)
	}
	put(t, s, Runtime{Name: "a", URL: "http://h", Secret: a.Secret})
	if next := own(t, s, "a", true, Replaced); next.Secret.Equal(a.Secret) || next.URL != "http://h" {
		t.Errorf("rotated: %+v", next)
	}
	own(t, s, "new", true, Made)
	if _, _, _, err := s.Own("../x", false); !errors.Is(err, ErrBadName) {
		t.Errorf("%v", err)
	}
}

// A bridge may replace what a bridge made, but not a secret that a person has seen.
func TestOwnMakesAPairingOfAPageThePersons(t *testing.T) {
	s := Open(t.TempDir())
	for _, rotate := range []bool{false, true} {
		r := made(t, "a")
		r.FromPage = true
		put(t, s, r)
		if got, err := Open(filepath.Dir(s.Path())).Get("a"); err != nil || !got.FromPage {
			t.Fatalf("stored as %+v, %v", got, err)
		}
		if got, _, _, err := s.Own("a", rotate); err != nil || got.FromPage || got.Secret.Equal(r.Secret) == rotate {
			t.Errorf("rotate %t: Own returned %+v, %v", rotate, got, err)
		}
		if got, err := Open(filepath.Dir(s.Path())).Get("a"); err != nil || got.FromPage {
			t.Errorf("rotate %t: still a page's: %+v, %v", rotate, got, err)
		}
	}
	put(t, s, made(t, "a"))
	if got, err := s.Get("a"); err != nil || got.FromPage {
		t.Errorf("a new pairing is a page's: %+v, %v", got, err)
	}
}
