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
	"colabrelay/relay/pairing"
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

// in reports whether source is the cell with these words in its title.
func in(source, title string) bool {
	first, _, _ := strings.Cut(source, "\n")
	return strings.Contains(first, title)
}

// reports is the output of a cell that reports this on the job of source.
func reports(source, what string) string {
	return stream(`colab-relay-enrollment: {"job": "` + jobLine.FindStringSubmatch(source)[1] + `", ` + what + "}\n")
}

// Each row of what users, page and VM do has its answer. Nothing is paired and no cell stays.
func TestWhatGoesWrong(t *testing.T) {
	for name, c := range map[string]struct {
		arrange func(s *setup)
		want    error
		says    string
		starts  int // executors that were started
	}{
		"nobody clicks": {func(s *setup) { s.nb.show = untilClosed(nil) }, ErrNotReady, "300 s", 0},
		"no VM": {func(s *setup) {
			s.nb.show = func(string, string) (string, error) {
				return "", &page.ToolError{Tool: "run_code_cell", Text: "Cannot connect to a GPU \x1b[31mbackend\x1b[0m\nNo T4 is free"}
			}
		}, ErrPage, `run_code_cell says "Cannot connect to a GPU backend No T4 is free"`, 0},
		"the tunnel fails": {func(s *setup) {
			s.nb.show = func(source, text string) (string, error) {
				if in(source, "pairs the executor") {
					return reports(source, `"error": "ERR_NGROK_105: the authtoken is refused"`), nil
				}
				return stream(text), nil
			}
		}, ErrCell, "ERR_NGROK_105", 1},
		"another executor answers": {func(s *setup) {
			s.b.cfg.Reach = func(context.Context, pairing.Runtime) (string, error) { return "instance-2", nil }
		}, ErrNotGenuine, "another executor answers", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSetup(t)
				c.arrange(s)
				_, err := s.start(Request{})
				if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || strings.ContainsAny(err.Error(), "\x1b\n") {
					t.Errorf("got %v; want %v that says %q", err, c.want, c.says)
				}
				if s.vm.starts != c.starts {
					t.Errorf("%d executors were started", s.vm.starts)
				}
				s.untouched()
			})
		})
	}
}
