package bridge

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"colabrelay/relay/page"
	"colabrelay/relay/pairing"
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
