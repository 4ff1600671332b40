package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	bootstrap "colabrelay/colab-bootstrap"
	"colabrelay/relay/page"
	"colabrelay/relay/pairing"
	"colabrelay/shared/enrollment"
)

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
		"a cell of the user runs and runs": {func(s *setup) {
			s.nb.before = func(ctx context.Context, call, _ string) error {
				if call != "run_code_cell" {
					return nil
				}
				<-ctx.Done()
				return page.ErrRunning
			}
		}, ErrNotReady, "300 s", 0},
		"no VM": {func(s *setup) {
			s.nb.show = func(string, string) (string, error) {
				return "", &page.ToolError{Tool: "run_code_cell", Text: "Cannot connect to a GPU \x1b[31mbackend\x1b[0m\nNo T4 is free"}
			}
		}, ErrPage, `run_code_cell says "Cannot connect to a GPU backend No T4 is free"`, 0},
		"the kernel speaks R": {func(s *setup) {
			s.nb.show = func(string, string) (string, error) {
				return `[{"output_type": "error", "ename": "ERROR", "evalue": "could not find function", "traceback": []}]`, nil
			}
		}, ErrCell, "ERROR: could not find function", 0},
		"the download fails": {func(s *setup) {
			s.nb.show = func(source, text string) (string, error) {
				if in(source, "starts the executor") {
					return reports(source, `"error": "https://releases.example: the server does not have it"`), nil
				}
				return stream(text), nil
			}
		}, ErrCell, "the server does not have it", 1},
		"the tunnel fails": {func(s *setup) {
			s.nb.show = func(source, text string) (string, error) {
				if in(source, "pairs the executor") {
					return reports(source, `"error": "ERR_NGROK_105: the authtoken is refused"`), nil
				}
				return stream(text), nil
			}
		}, ErrCell, "ERR_NGROK_105", 1},
		"the user deletes the cell": {func(s *setup) {
			s.nb.show = func(source, text string) (string, error) {
				if in(source, "starts the executor") {
					_ = s.nb.edit("cell-1", func(at int) { s.nb.cells = s.nb.cells[:at] })
				}
				return stream(text), nil
			}
		}, ErrPage, "no such cell", 1},
		"the tunnel's name does not resolve": {func(s *setup) {
			s.b.cfg.Reach = func(ctx context.Context, _ pairing.Runtime) (string, error) {
				<-ctx.Done()
				return "", errors.New("no such host")
			}
		}, ErrUnreachable, "no such host", 1},
		"another executor answers": {func(s *setup) {
			s.b.cfg.Reach = func(context.Context, pairing.Runtime) (string, error) { return "instance-2", nil }
		}, ErrNotGenuine, "another executor answers", 1},
		"no release is known": {func(s *setup) {
			s.b.cfg.Release = func(context.Context) (bootstrap.Release, error) {
				return bootstrap.Release{}, errors.New("this relay is not a release")
			}
		}, ErrPrepare, "this relay is not a release", 0},
		"the release is not usable": {func(s *setup) {
			s.b.cfg.Release = func(context.Context) (bootstrap.Release, error) {
				return bootstrap.Release{Releases: `https://x"`}, nil
			}
		}, ErrPrepare, "plain URL", 0},
		"the token file is wrong": {func(s *setup) {
			s.b.cfg.Tunnel = func() (Tunnel, error) { return Tunnel{}, errToken }
		}, errToken, "NGROK_AUTHTOKEN_FILE", 0},
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

var errToken = errors.New("NGROK_AUTHTOKEN_FILE: no such file")

func TestAClickInTheLastSecondIsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		clicked := make(chan struct{})
		time.AfterFunc(readyLimit-time.Second-runPause, func() { close(clicked) })
		s.nb.show = untilClosed(clicked)
		s.pairs(Request{})
	})
}

// The page may show an answer later than the offer is valid.
func TestLateAnswersAreRefused(t *testing.T) {
	for _, c := range []struct {
		title string
		after time.Duration
		want  error
	}{
		{"starts the executor", enrollment.Lifetime - time.Second, nil},
		{"starts the executor", enrollment.Lifetime, ErrExpired},
		{"pairs the executor", enrollment.Lifetime - time.Second, nil},
		{"pairs the executor", enrollment.Lifetime, ErrExpired},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSetup(t)
			s.nb.show = func(source, text string) (string, error) {
				if in(source, c.title) {
					<-time.After(c.after)
				}
				return stream(text), nil
			}
			_, err := s.start(Request{})
			if !errors.Is(err, c.want) {
				t.Errorf("%s after %s: %v", c.title, c.after, err)
			}
			s.clean()
			if n := len(s.stored()); n > 0 != (c.want == nil) {
				t.Errorf("%s after %s: %d pairings", c.title, c.after, n)
			}
		})
	}
}

func TestACellThatCannotBeRemovedIsNamed(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newSetup(t)
			s.nb.before = func(_ context.Context, call, _ string) error {
				if call == "delete_cell" {
					return &page.ToolError{Tool: call, Text: "the cell runs"}
				}
				return nil
			}
			if fails {
				s.vm.tunnel = "none"
			}
			paired, err := s.start(Request{})
			said := fmt.Sprint(paired.Notes, err)
			if (err != nil) != fails || !strings.Contains(said, `cell "cell-1"`) || !strings.Contains(said, "delete it in the notebook") {
				t.Errorf("got %s", said)
			}
			s.nb.before = nil
			if _, err := s.start(Request{}); (err != nil) != fails {
				t.Error(err)
			}
			s.clean()
		})
	}
}
