package bridge

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/page"
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

func TestWithoutATokenTheVMChoosesTheTunnel(t *testing.T) {
	for _, tunnel := range []string{"ngrok", "cloudflared", "none", "secrets"} {
		synctest.Test(t, func(t *testing.T) {
			s := newSetup(t)
			s.b.cfg.Tunnel = func() (Tunnel, error) { return Tunnel{Domain: "a.example"}, nil }
			s.vm.tunnel = tunnel
			_, err := s.start(Request{})
			if tunnel != "ngrok" && tunnel != "cloudflared" {
				if !errors.Is(err, ErrNotGenuine) || len(s.vm.grants) > 0 {
					t.Errorf("%s: error %v, %d grants", tunnel, err, len(s.vm.grants))
				}
				s.untouched()
				return
			}
			if err != nil || s.vm.grants[0].Tunnel != tunnel || s.vm.grants[0].NgrokToken != "" || s.vm.grants[0].Domain != "" {
				t.Errorf("%s: error %v, grants %v", tunnel, err, s.vm.grants)
			}
		})
	}
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

func TestAnOldOutcomeIsNotToldLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.nb.show = func(string, string) (string, error) { return "", &page.ToolError{Tool: "run_code_cell", Text: "no VM"} }
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 2 { // the first call starts, the second finds the kept outcome or one that ended just now
			_, _ = s.b.Start(ctx, s.nb, Request{}, nil)
			synctest.Wait()
		}
		s.nb.show = nil
		<-time.After(keepResult)
		s.pairs(Request{})
	})
}

func TestManyCallersShareOneStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		results := make(chan error, 20)
		for range cap(results) {
			go func() {
				_, err := s.b.Start(t.Context(), s.nb, Request{}, func(string) {})
				results <- err
			}()
		}
		for range cap(results) {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if s.vm.starts != 1 {
			t.Errorf("%d executors were started", s.vm.starts)
		}
		s.clean()
	})
}

func TestCloseRemovesTheCell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.nb.show = untilClosed(nil)
		result := make(chan error, 1)
		go func() {
			_, err := s.b.Start(t.Context(), s.nb, Request{}, nil)
			result <- err
		}()
		<-time.After(time.Second)
		s.b.Close()
		if err := <-result; !errors.Is(err, ErrClosed) {
			t.Errorf("got %v", err)
		}
		s.untouched()
		if _, err := s.start(Request{}); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestTheStatusCellStaysAndRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		paired, err := s.start(Request{StatusCell: true})
		if err != nil || !slices.Equal(paired.Notes, []string{noteStatus}) {
			t.Fatalf("%+v, %v", paired, err)
		}
		const title = "#@title colab-relay: the executor runs; stop this cell to stop it"
		if titles := s.nb.titles(); !slices.Equal(titles, []string{"x = 1", title}) {
			t.Errorf("cells %q", titles)
		}
		inserted := s.nb.next
		if again, err := s.start(Request{StatusCell: true}); err != nil || !again.Already || !slices.Equal(again.Notes, []string{noteStatus}) || s.nb.next != inserted {
			t.Errorf("a second call inserted a cell, or: %+v, %v", again, err)
		}
		s.vm.instance, s.vm.url = "instance-2", "https://new.example" // the VM was replaced; its cell ended
		close(s.vm.status)
		if again, err := s.start(Request{}); err != nil || again.Already || !slices.Equal(s.nb.titles(), []string{"x = 1", title}) {
			t.Errorf("on a new VM: %+v, %v, %q", again, err, s.nb.titles())
		}
	})
}

func TestAStatusCellThatEndsAtOnceIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		close(s.vm.status)
		paired := s.pairs(Request{StatusCell: true})
		if len(paired.Notes) != 1 || !strings.HasPrefix(paired.Notes[0], noteFailed) {
			t.Errorf("notes %q", paired.Notes)
		}
	})
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

func TestTheStatusCellCanBeAddedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.pairs(Request{})
		again, err := s.start(Request{StatusCell: true})
		if err != nil || !again.Already || !slices.Equal(again.Notes, []string{noteStatus}) || len(s.nb.titles()) != 2 {
			t.Errorf("%+v, %v, %q", again, err, s.nb.titles())
		}
	})
}
