package bridge

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"colabrelay/relay/pairing"
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
