package bridge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"colabrelay/relay/pairing"
	"colabrelay/shared/auth"
)

func TestAPersonsPairingStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		own := s.put("default", "https://mine.example")
		if _, _, _, err := s.store.Own("lab", false); err != nil { // a secret without an address yet
			t.Fatal(err)
		}
		for _, name := range []string{"default", "lab"} {
			if _, err := s.start(Request{Name: name}); !errors.Is(err, ErrNameTaken) || s.nb.next > 0 {
				t.Errorf("%s: %v", name, err)
			}
		}
		paired := s.pairs(Request{})
		if paired.Runtime.Name != "colab-page" || !strings.Contains(paired.Notes[0], `calls use "default"`) {
			t.Errorf("%+v", paired)
		}
		if got, err := s.store.Get("default"); err != nil || got.URL != own.URL || !got.Secret.Equal(own.Secret) {
			t.Errorf("the pairing became %+v, %v", got, err)
		}
	})
}

func TestThePairingOfADeadVMIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.pairs(Request{})
		s.vm.starts, s.vm.grants, s.vm.instance, s.vm.url = 0, nil, "instance-2", "https://new.example"
		paired := s.pairs(Request{})
		if all := s.stored(); !slices.Equal(all, []string{"default https://new.example"}) || !strings.Contains(paired.Notes[0], "https://vm.example") {
			t.Errorf("stored %q, notes %q", all, paired.Notes)
		}
	})
}

// The notebook in the tab is on another VM than the executor of an earlier bridge.
func TestThePairingOfAnotherVMStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.pairs(Request{})
		first := *s.vm
		*s.vm = *newVM()
		s.vm.instance, s.vm.url = "instance-2", "https://other.example"
		both := *s
		s.b.cfg.Reach = func(ctx context.Context, r pairing.Runtime) (string, error) {
			if r.URL == first.url && r.Secret.Reveal() == first.grants[0].Secret {
				return first.instance, nil
			}
			return both.reach(ctx, r)
		}
		if _, err := s.start(Request{Name: "default"}); !errors.Is(err, ErrNameTaken) {
			t.Errorf("by name: %v", err)
		}
		s.clean()
		paired := s.pairs(Request{})
		if all := s.stored(); !slices.Equal(all, []string{"colab-page https://other.example", "default https://vm.example"}) || paired.Runtime.Name != "colab-page" {
			t.Errorf("stored %q", all)
		}
	})
}

// However many pairings there are, the one whose name is asked for is looked at.
func TestThePairingOfAnotherVMStaysAmongMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		for i := range maxLooked + 1 {
			r := pairing.Runtime{Name: fmt.Sprintf("lab-%d", i), URL: fmt.Sprintf("https://%d.example", i), Secret: auth.GenerateSecret(), FromPage: true}
			if _, err := s.store.Put(r); err != nil {
				t.Fatal(err)
			}
		}
		s.b.cfg.Reach = func(_ context.Context, r pairing.Runtime) (string, error) { return "instance of " + r.Name, nil }
		name := fmt.Sprintf("lab-%d", maxLooked)
		if _, err := s.start(Request{Name: name}); !errors.Is(err, ErrNameTaken) {
			t.Errorf("%s: %v", name, err)
		}
		s.clean()
	})
}

func TestANameThatIsTakenMeanwhileStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.nb.show = func(source, text string) (string, error) {
			if strings.Contains(source, "pairs the executor") {
				s.put("lab", "https://mine.example")
			}
			return stream(text), nil
		}
		if paired := s.pairs(Request{Name: "lab"}); paired.Runtime.Name != "default" {
			t.Errorf("paired as %q", paired.Runtime.Name)
		}
		if all := s.stored(); !slices.Equal(all, []string{"default https://vm.example", "lab https://mine.example"}) {
			t.Errorf("stored %q", all)
		}
	})
}

func TestAllNamesInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		for _, name := range names {
			s.put(name, "https://mine.example")
		}
		if _, err := s.start(Request{}); !errors.Is(err, ErrNameTaken) || s.vm.starts > 0 {
			t.Errorf("got %v, %d executors", err, s.vm.starts)
		}
		s.clean()
	})
}

func TestABadNameIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		for _, name := range []string{"../x", "env", strings.Repeat("a", 65)} {
			if _, err := s.start(Request{Name: name}); !errors.Is(err, pairing.ErrBadName) {
				t.Errorf("%q: %v", name, err)
			}
		}
		s.untouched()
	})
}

func TestADamagedListIsKeptAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		if err := os.WriteFile(s.store.Path(), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if paired := s.pairs(Request{}); !strings.Contains(paired.Notes[0], "damaged") {
			t.Errorf("notes %q", paired.Notes)
		}
	})
}

func TestAnotherDefaultIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		env := map[string]string{"COLAB_URL": "https://env.example", "COLAB_SECRET": strings.Repeat("s", 32)}
		s.b.cfg.Getenv = func(name string) string { return env[name] }
		if paired := s.pairs(Request{}); !strings.Contains(paired.Notes[0], `calls use "env"`) {
			t.Errorf("notes %q", paired.Notes)
		}
	})
}
