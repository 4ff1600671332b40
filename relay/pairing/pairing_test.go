package pairing

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

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
	must(t, os.Chmod(s.Path(), 0o644))
	put(t, s, made(t, "b"))
	for path, want := range map[string]os.FileMode{s.Path(): 0o600, filepath.Dir(s.Path()): 0o700} {
		info, err := os.Stat(path)
		must(t, err)
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
		must(t, command.Choose(name))
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
	must(t, command.Remove("b"))
	resolvesTo(DefaultName)
	put(t, command, made(t, "b")) // a new pairing is not chosen
	resolvesTo(DefaultName)
}

func TestTheCommandThatComesBackHasItsArguments(t *testing.T) {
	s := Open(t.TempDir())
	r := Runtime{Name: "gpu", URL: "http://127.0.0.1:20000", Secret: auth.GenerateSecret(), SSHHost: "me@lab",
		SSHArguments: []string{"--python", "~/my env/bin/python", "--", "-F", "/etc/lab's", "-p", "22"}}
	put(t, s, r)
	read, err := Open(filepath.Dir(s.Path())).Get("gpu")
	if want := `me@lab --stop --name gpu --python '~/my env/bin/python' -- -F '/etc/lab'\''s' -p 22`; err != nil || runtime.GOOS != "windows" && read.SSHCommand("--stop") != "colab-relay ssh "+want {
		t.Errorf("it is %s, want %s (%v)", read.SSHCommand("--stop"), want, err)
	}
	if !strings.Contains(read.Comeback(), "`"+r.SSHCommand()+"`") {
		t.Errorf("the next step is %s", read.Comeback())
	}
	put(t, s, made(t, "other"))
	if read, err = s.Get("gpu"); err != nil || !slices.Equal(read.SSHArguments, r.SSHArguments) {
		t.Errorf("after a change of another runtime they are %q, %v", read.SSHArguments, err)
	}
}

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
	must(t, s.SaveLastSeen("a", seen))
	if got := Open(dir).LastSeen("a"); got != seen {
		t.Errorf("%+v", got)
	}
	must(t, os.WriteFile(filepath.Join(dir, "lives.json"), []byte("{rubbish"), 0o600))
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
		must(t, s.SaveLastSeen(r.Key(), LastSeen{KernelID: "k"}))
	}
	must(t, s.Remove("a"))
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

const envSecret = "a-secret-of-the-environment-0123456789"

func TestResolve(t *testing.T) {
	env := map[string]string{"COLAB_URL": "https://env.example/", "COLAB_SECRET": envSecret}
	for name, c := range map[string]struct {
		ask    string
		env    map[string]string
		stored []string
		want   string // name of the runtime, or
		err    error  // the error, which says
		says   string
	}{
		"the argument comes first":   {"b", env, []string{"a", "b", "default"}, "b", nil, ""},
		"then the environment":       {"", env, []string{"a", "default"}, "env", nil, ""},
		"the environment by name":    {"env", env, []string{"default"}, "env", nil, ""},
		"then the default":           {"", nil, []string{"a", "default", "z"}, "default", nil, ""},
		"then the only one":          {"", nil, []string{"lab"}, "lab", nil, ""},
		"several without a default":  {"", nil, []string{"b", "a"}, "", ErrAmbiguous, `"a", "b"`},
		"an unknown one":             {"c", env, []string{"a", "b"}, "", ErrUnknownName, `runtime "c" is not paired; the runtimes are "a", "b", "env"`},
		"one beside the environment": {"default", env, nil, "", ErrUnknownName, `runtime "default" is not paired; the only runtime is "env"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := Open(t.TempDir())
			for _, stored := range c.stored {
				put(t, s, made(t, stored))
			}
			got, err := Resolve(c.ask, func(key string) string { return c.env[key] }, s)
			if got.Name != c.want || !errors.Is(err, c.err) {
				t.Fatalf("got %v, %v", got, err)
			}
			if err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error says %q", err)
			}
		})
	}
}

func TestResolveReadsTheEnvironment(t *testing.T) {
	secret, err := auth.NewSecret(envSecret)
	must(t, err)
	file := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(file, []byte(envSecret+"\n"), 0o600))
	text := auth.Pairing{URL: "https://paired.example/", Secret: secret}.String()
	for name, c := range map[string]struct {
		env       map[string]string
		url, says string // the runtime's address, or what the error says
	}{
		"secret in file":     {map[string]string{"COLAB_URL": "https://e", "COLAB_SECRET": "", "COLAB_SECRET_FILE": file}, "https://e", ""},
		"no secret":          {map[string]string{"COLAB_URL": "https://e"}, "", "COLAB_SECRET or COLAB_SECRET_FILE"},
		"short secret":       {map[string]string{"COLAB_URL": "https://e", "COLAB_SECRET": "hunter2"}, "", "COLAB_SECRET: secret is shorter"},
		"a pairing":          {map[string]string{"COLAB_PAIRING": text}, "https://paired.example", ""},
		"COLAB_URL precedes": {map[string]string{"COLAB_PAIRING": text, "COLAB_URL": "https://e", "COLAB_SECRET": envSecret}, "https://e", ""},
		"a cut pairing":      {map[string]string{"COLAB_PAIRING": text[:len(text)-9]}, "", "COLAB_PAIRING is not a pairing string"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Resolve("", func(key string) string { return c.env[key] }, Open(t.TempDir()))
			if c.says == "" && (err != nil || r.Name != EnvName || r.URL != c.url || r.Secret.Reveal() != envSecret) {
				t.Errorf("it is runtime %q at %q, %v", r.Name, r.URL, err)
			}
			if c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), text[20:40])) {
				t.Errorf("the error is %v, want one with %q and without the secret", err, c.says)
			}
		})
	}
}

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

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
