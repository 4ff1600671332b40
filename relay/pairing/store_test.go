package pairing

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/tier"
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

// A running relay asks for its runtime at each call.
func TestAListIsReadAgainOnlyAfterAChange(t *testing.T) {
	s, a, b := Open(t.TempDir()), made(t, "a"), made(t, "b")
	old := time.Now().Add(-time.Hour)
	// rewrite changes the file in place, as an editor may, and leaves its size.
	rewrite := func(from, to string, changed time.Time) {
		t.Helper()
		text, err := os.ReadFile(s.Path())
		if err == nil {
			err = os.WriteFile(s.Path(), []byte(strings.ReplaceAll(string(text), from, to)), 0o600)
		}
		if err = errors.Join(err, os.Chtimes(s.Path(), changed, changed)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(name string) {
		t.Helper()
		if list, err := s.List(); err != nil || len(list) != 1 || list[0].Name != name {
			t.Errorf("listed %v, %v, want %s", list, err, name)
		}
	}
	put(t, Open(s.dir), a)
	rewrite("nothing", "", old)
	want("a")
	rewrite(`"a"`, `"c"`, old) // cannot be noticed: shows that the file is not read
	want("a")
	rewrite(`"c"`, `"d"`, old.Add(time.Second))
	want("d")
	if err := Open(s.dir).Remove("d"); err != nil {
		t.Fatal(err)
	}
	put(t, Open(s.dir), b)
	want("b")
	rewrite(`"b"`, `"e"`, time.Now()) // a change moments ago may be followed by one that does not show
	want("e")
	rewrite(`"e"`, `"f"`, time.Now())
	want("f")
}

func TestAChangeOfAReturnedListDoesNotChangeTheStore(t *testing.T) {
	s := Open(t.TempDir())
	put(t, s, made(t, "a"))
	if err := os.Chtimes(s.Path(), time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		all, err := s.load()
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		clear(all)
	}
}

func TestPutReturnsTheAddressItReplaces(t *testing.T) {
	s := Open(t.TempDir())
	old, other := made(t, "a"), made(t, "a")
	other.URL = "https://new.example"
	put(t, s, old, made(t, "b"))
	if before, err := s.Put(other); err != nil || before.URL != old.URL || before.Damage != nil {
		t.Errorf("%v, %v", before, err)
	}
	other.URL += "/"
	if before, err := s.Put(other); err != nil || before.URL != "" {
		t.Errorf("the same address again: %v, %v", before, err)
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

func TestManyWritersLoseNothing(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for n := range 40 {
		all.Go(func() {
			s := Open(dir)
			if _, err := s.Put(made(t, fmt.Sprintf("r%d", n))); err != nil {
				t.Error(err)
			}
			if _, err := s.List(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if list, err := Open(dir).List(); err != nil || len(list) != 40 {
		t.Errorf("%d of 40 are stored, %v", len(list), err)
	}
}

// TestMain runs this test program as one of the other programs of
// TestManyProgramsLoseNothing.
func TestMain(m *testing.M) {
	if dir := os.Getenv("PAIRING_TEST_DIR"); dir != "" {
		for n := range 10 {
			name := fmt.Sprintf("p%s-%d", os.Getenv("PAIRING_TEST_N"), n)
			if _, err := Open(dir).Put(Runtime{Name: name, URL: "http://h", Secret: auth.GenerateSecret()}); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestManyProgramsLoseNothing(t *testing.T) {
	tier.Long(t)
	dir := t.TempDir()
	var all sync.WaitGroup
	for n := range 6 {
		all.Go(func() {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "PAIRING_TEST_DIR="+dir, fmt.Sprintf("PAIRING_TEST_N=%d", n))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	all.Wait()
	if list, err := Open(dir).List(); err != nil || len(list) != 60 {
		t.Errorf("%d of 60 are stored, %v", len(list), err)
	}
}

func TestADamagedFileIsReportedAndKept(t *testing.T) {
	for name, content := range map[string]string{
		"cut":          `{"version":1,"runtimes":{"a":{"url":"http`,
		"empty":        "",
		"no version":   `{"runtimes":{}}`,
		"short secret": `{"version":1,"runtimes":{"a":{"url":"http://h","secret":"short"}}}`,
		"bad URL":      `{"version":1,"runtimes":{"a":{"url":"file:///etc","secret":"` + strings.Repeat("s", 40) + `"}}}`,
		"huge":         strings.Repeat(" ", maxFile+1),
	} {
		t.Run(name, func(t *testing.T) {
			s := Open(t.TempDir())
			if err := os.WriteFile(s.Path(), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := s.List(); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), fileName) {
				t.Errorf("List gave %v", err)
			}
			if still, err := os.ReadFile(s.Path()); err != nil || string(still) != content {
				t.Fatal("reading changed the file")
			}
			fresh := made(t, "new")
			before, err := s.Put(fresh)
			if err != nil || !errors.Is(before.Damage, ErrDamaged) {
				t.Fatalf("Put gave %v, %v", before, err)
			}
			kept, err := filepath.Glob(s.Path() + ".damaged-*")
			if err != nil || len(kept) != 1 || !strings.Contains(before.Damage.Error(), kept[0]) {
				t.Fatalf("kept %q, %v, said %v", kept, err, before.Damage)
			}
			if old, err := os.ReadFile(kept[0]); err != nil || string(old) != content {
				t.Error("the kept file has other content")
			}
			if got, err := s.Get("new"); err != nil || !same(got, fresh) {
				t.Errorf("the new list holds %v, %v", got, err)
			}
		})
	}
}

func TestANewerFileIsNotChanged(t *testing.T) {
	s := Open(t.TempDir())
	const content = `{"version":4,"runtimes":{}}`
	if err := os.WriteFile(s.Path(), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	_, putErr := s.Put(made(t, "a"))
	for _, err := range []error{putErr, func() error { _, err := s.List(); return err }()} {
		if err == nil || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "newer") {
			t.Errorf("got %v", err)
		}
	}
	if still, err := os.ReadFile(s.Path()); err != nil || string(still) != content {
		t.Error("the newer file was changed")
	}
}

// Older relays go on reading a list that they understand, and leave one that they do not.
func TestAProviderIsKeptAndShownToOlderRelays(t *testing.T) {
	s := Open(t.TempDir())
	versionIs := func(want string) {
		t.Helper()
		if text, err := os.ReadFile(s.Path()); err != nil || !strings.Contains(string(text), `"version": `+want) {
			t.Errorf("want version %s, got %s, %v", want, text, err)
		}
	}
	put(t, s, made(t, "a"))
	versionIs("2")
	proxied := made(t, "b")
	proxied.Provider, proxied.VMID = "colab-api", "colab-relay-0123456789abcdef"
	put(t, s, proxied)
	versionIs("3")
	if got, err := Open(s.dir).Get("b"); err != nil || !same(got, proxied) {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := s.Choose("b"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get("b"); err != nil || got.Provider != proxied.Provider || got.VMID != proxied.VMID {
		t.Errorf("Choose changed it to %+v, %v", got, err)
	}
	again := made(t, "b") // paired anew by its URL
	put(t, s, again)
	if got, err := s.Get("b"); err != nil || got.Provider != "" || got.VMID != "" {
		t.Errorf("the new pairing has the provider of the old one: %+v, %v", got, err)
	}
	versionIs("2")
}

func TestPutRefuses(t *testing.T) {
	secret := auth.GenerateSecret()
	for name, r := range map[string]Runtime{
		"no name":       {Name: "", URL: "http://h", Secret: secret},
		"env":           {Name: EnvName, URL: "http://h", Secret: secret},
		"a path":        {Name: "../x", URL: "http://h", Secret: secret},
		"long name":     {Name: strings.Repeat("n", 65), URL: "http://h", Secret: secret},
		"no URL":        {Name: "a", URL: "", Secret: secret},
		"no host":       {Name: "a", URL: "http://", Secret: secret},
		"other scheme":  {Name: "a", URL: "ftp://h", Secret: secret},
		"user in URL":   {Name: "a", URL: "http://me:pw@h", Secret: secret},
		"query in URL":  {Name: "a", URL: "http://h?x=1", Secret: secret},
		"no secret":     {Name: "a", URL: "http://h", Secret: auth.Secret{}},
		"VM alone":      {Name: "a", URL: "http://h", Secret: secret, VMID: "v"},
		"provider only": {Name: "a", URL: "http://h", Secret: secret, Provider: "p"},
		"unreadable %%": {Name: "a", URL: "http://h/%zz", Secret: secret},
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

func FuzzDecode(f *testing.F) {
	f.Add(`{"version":1,"runtimes":{"a":{"url":"http://h","secret":"` + strings.Repeat("s", 40) + `"}}}`)
	f.Add(`{"version":3}`)
	f.Add(`{"version":3,"runtimes":{"a":{"url":"http://h","provider":"p","vm_id":"v","secret":"` + strings.Repeat("s", 40) + `"}}}`)
	f.Add(`{"version":2,"runtimes":{"a":{"secret":"` + strings.Repeat("s", 40) + `"}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := decode(strings.NewReader(text))
		if err != nil {
			return
		}
		written, err := encode(all)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decode(written)
		if err != nil || len(again) != len(all) {
			t.Fatalf("read back %d of %d, %v", len(again), len(all), err)
		}
		for name, r := range all {
			if !same(again[name], r) {
				t.Errorf("%q changed", name)
			}
		}
	})
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
