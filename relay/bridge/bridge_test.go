package bridge

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/shared/enrollment"
)

func TestOneCallPairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		paired := s.pairs(Request{})
		if all := s.stored(); !slices.Equal(all, []string{"default https://vm.example"}) || paired.Already || paired.Runtime.Name != "default" {
			t.Errorf("stored %q, returned %+v", all, paired)
		}
		if want := (enrollment.Grant{Secret: paired.Runtime.Secret.Reveal(), Tunnel: "ngrok", NgrokToken: someToken, Domain: "a.example"}); s.vm.grants[0] != want {
			t.Errorf("the VM got another grant")
		}
		if !slices.Equal(s.steps, []string{stepReady, stepStart, stepTunnel, stepCheck}) {
			t.Errorf("steps %q", s.steps)
		}
		if !slices.Equal(paired.Notes, []string{noteOffer}) {
			t.Errorf("notes %q", paired.Notes)
		}
		for _, secret := range []string{paired.Runtime.Secret.Reveal(), someToken} {
			if strings.Contains(s.nb.seen.String(), secret) {
				t.Error("the page saw a secret")
			}
		}
	})
}

// A VM that prepares another tunnel than the one whose token it gets is not believed.
func TestWithATokenTheVMDoesNotChoose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.vm.tunnel = "cloudflared"
		if _, err := s.start(Request{}); !errors.Is(err, ErrNotGenuine) || len(s.vm.grants) > 0 {
			t.Errorf("error %v, %d grants", err, len(s.vm.grants))
		}
		s.untouched()
	})
}

func TestTheSameCallJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		clicked := make(chan struct{})
		s.nb.show = untilClosed(clicked)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second)
			_, err := s.b.Start(ctx, s.nb, Request{}, nil)
			cancel()
			var starting *StartingError
			if !errors.As(err, &starting) || starting.Step != stepReady || !errors.Is(err, ErrStarting) {
				t.Fatalf("got %v", err)
			}
		}
		if _, err := s.start(Request{Name: "other"}); !errors.Is(err, ErrBusy) || !strings.HasSuffix(err.Error(), "by a call without a runtime") {
			t.Errorf("another name: %v", err)
		}
		close(clicked)
		synctest.Wait()
		<-time.After(time.Minute) // nobody waits; the outcome is kept
		s.pairs(Request{})
		if s.vm.starts != 1 || s.nb.next != 1 {
			t.Errorf("%d executors were started, %d cells inserted", s.vm.starts, s.nb.next)
		}
		if last := s.steps[len(s.steps)-1]; last != stepCheck || slices.Contains(s.steps, stepReady) {
			t.Errorf("who joins gets the steps %q", s.steps)
		}
	})
}

// untilClosed shows no outputs, as while "Run anyway" is not clicked.
func untilClosed(clicked <-chan struct{}) func(source, text string) (string, error) {
	return func(_, text string) (string, error) {
		select {
		case <-clicked:
			return `[{"output_type": "stream", "name": "stdout", "text": [` + quoted(text) + `]}]`, nil
		default:
			return `[]`, nil
		}
	}
}

func TestAnExecutorThatRunsOnThisVMIsNotStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		first := s.pairs(Request{Name: "lab"})
		for _, b := range []*Bridge{s.b, New(s.cfg)} { // the same relay, and another one
			again, err := b.Start(t.Context(), s.nb, Request{}, nil)
			if err != nil || !again.Already || again.Runtime.Name != "lab" || !again.Runtime.Secret.Equal(first.Runtime.Secret) {
				t.Errorf("%+v, %v", again, err)
			}
			s.clean()
			b.Close()
		}
		if s.vm.starts != 1 {
			t.Errorf("%d executors were started", s.vm.starts)
		}
	})
}
