package pairing

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"colabrelay/shared/auth"
)

func made(t testing.TB, name string) Runtime {
	t.Helper()
	return Runtime{Name: name, URL: "https://" + name + ".ngrok.app", Secret: auth.GenerateSecret()}
}

func put(t testing.TB, s *Store, runtimes ...Runtime) {
	t.Helper()
	for _, r := range runtimes {
		if _, err := s.Put(r); err != nil {
			t.Fatal(err)
		}
	}
}

func same(a, b Runtime) bool {
	return a.Name == b.Name && a.URL == b.URL && a.Secret.Equal(b.Secret) && a.Provider == b.Provider && a.VMID == b.VMID
}

func TestAnotherStoreReadsAPairingImmediately(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "when", "missing")
	running, command := Open(dir), Open(dir)
	if list, err := running.List(); err != nil || len(list) != 0 {
		t.Fatalf("a store without a file lists %v, %v", list, err)
	}
	a, b := made(t, "a"), made(t, "b")
	put(t, command, b, a)
	list, err := running.List()
	if err != nil || len(list) != 2 || !same(list[0], a) || !same(list[1], b) {
		t.Fatalf("listed %v, %v", list, err)
	}
	again := made(t, "a")
	if before, err := command.Put(again); err != nil || before != (Before{}) {
		t.Errorf("before the same address was %v, %v", before, err)
	}
	if got, err := running.Get("a"); err != nil || !same(got, again) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := running.Get("c"); !errors.Is(err, ErrNotPaired) || !strings.Contains(err.Error(), `"a", "b"`) {
		t.Errorf("an unknown name gave %v", err)
	}
}

func TestOnlyTheUserCanReadTheFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("Windows has no mode bits: the permissions of the config folder apply")
		return
	}
	s := Open(filepath.Join(t.TempDir(), "config"))
	put(t, s, made(t, "a"))
	if err := os.Chmod(s.Path(), 0o644); err != nil {
		t.Fatal(err)
	}
	put(t, s, made(t, "b"))
	for path, want := range map[string]os.FileMode{s.Path(): 0o600, filepath.Dir(s.Path()): 0o700} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
}

func TestPutRefuses(t *testing.T) {
	secret := auth.GenerateSecret()
	for name, r := range map[string]Runtime{
		"no name":      {Name: "", URL: "http://h", Secret: secret},
		"other scheme": {Name: "a", URL: "ftp://h", Secret: secret},
		"user in URL":  {Name: "a", URL: "http://me:pw@h", Secret: secret},
		"no secret":    {Name: "a", URL: "http://h", Secret: auth.Secret{}},
		"VM alone":     {Name: "a", URL: "http://h", Secret: secret, VMID: "v"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Open(t.TempDir())
			_, err := s.Put(r)
			if err == nil {
				t.Fatal("it was stored")
			}
			if strings.Contains(err.Error(), "pw") || strings.Contains(err.Error(), secret.Reveal()) {
				t.Errorf("the error contains a secret: %v", err)
			}
			if _, err := os.Stat(s.Path()); err == nil {
				t.Error("a file was written")
			}
		})
	}
}

func TestARuntimeThatMustStayIsNeitherReplacedNorRemoved(t *testing.T) {
	s := Open(t.TempDir())
	ours, others := Runtime{Name: "a", URL: "https://ours.example", Secret: auth.GenerateSecret()}, Runtime{Name: "a", URL: "https://others.example", Secret: auth.GenerateSecret()}
	refused := errors.New("not ours")
	allow := func(r Runtime) error {
		if r.URL == others.URL {
			return refused
		}
		return nil
	}
	if _, err := s.PutIf(ours, allow); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutIf(others, allow); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutIf(ours, allow); !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
	if err := s.RemoveIf("a", allow); !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
	if got, err := s.Get("a"); err != nil || got.URL != others.URL {
		t.Errorf("%+v, %v", got, err)
	}
}
