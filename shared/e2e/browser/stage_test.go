//go:build chromium

package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/shared/e2e/harness"
)

// limit is how long a test may take.
const limit = 3 * time.Minute

// page is the beginning of the URL of every notebook's page.
const page = "https://" + Host + "/"

func TestMain(m *testing.M) {
	if asked, err := Opener(os.Args); asked {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// stage is an MCP host with a relay, and the browser in which the relay opens the page.
type stage struct {
	*testing.T
	ctx      context.Context
	colab    *Colab
	chromium *Chromium
	laptop   harness.HostConfig
	host     *harness.Host
	tools    *DevTools // nil until the first tab
	tabs     []*Tab    // all that the relay opened
}

func newStage(t *testing.T) *stage {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	s := &stage{T: t, ctx: ctx}
	var err error
	s.colab, err = New(ctx, t.TempDir())
	s.must(err)
	t.Cleanup(s.colab.Close)
	s.chromium, err = NewChromium(s.colab)
	s.must(err)
	t.Cleanup(func() {
		if err := s.chromium.Close(); err != nil {
			t.Errorf("ending the browser: %v", err)
		}
	})
	binaries, err := harness.Build(ctx, t.TempDir())
	s.must(err)
	s.laptop = harness.HostConfig{Binary: binaries.Relay, Args: []string{"serve"}, Dir: t.TempDir(),
		Env: []string{"BROWSER=" + s.chromium.Program, "RELAY_TOOLSETS=page"}}
	s.host, err = harness.StartHost(ctx, s.laptop)
	s.must(err)
	t.Cleanup(func() {
		s.host.Close()
		if t.Failed() {
			t.Logf("the relay logged:\n%s", s.host.Stderr)
		}
	})
	return s
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// outcome is the answer of a call, or why there is none.
type outcome struct {
	harness.Answer
	err error
}

// begin calls a tool in the background.
func (s *stage) begin(tool string, args map[string]any) <-chan outcome {
	ended := make(chan outcome, 1)
	go func() {
		a, err := s.host.Call(s.ctx, tool, args)
		ended <- outcome{a, err}
	}()
	return ended
}

// end returns the answer of a call, which must be no error.
func (s *stage) end(call <-chan outcome) harness.Answer {
	s.Helper()
	got := <-call
	s.must(got.err)
	if got.IsError {
		s.Fatalf("the tool answers with an error: %s", got.Text)
	}
	return got.Answer
}

// call calls a tool, whose answer must be no error.
func (s *stage) call(tool string, args map[string]any) harness.Answer {
	s.Helper()
	return s.end(s.begin(tool, args))
}

// opened waits for the next tab that the relay opens.
func (s *stage) opened() *Tab {
	s.Helper()
	if s.tools == nil {
		var err error
		s.tools, err = s.chromium.Attach(s.ctx)
		s.must(err)
		s.Cleanup(s.tools.Close)
	}
	tab, err := s.tools.Opened(s.ctx, page, s.tabs...)
	s.must(err)
	s.tabs = append(s.tabs, tab)
	return tab
}

// connect opens a notebook by the tool and confirms the connection in its page.
func (s *stage) connect(args map[string]any) *Tab {
	s.Helper()
	call := s.begin("open_colab_browser_connection", args)
	tab := s.opened()
	s.must(tab.Confirm(s.ctx))
	if a := s.end(call); a.Fields["connected"] != true {
		s.Fatalf("not connected: %s", a.Text)
	}
	return tab
}

// add adds a code cell at the end and returns its id.
func (s *stage) add(code string) string {
	s.Helper()
	id := s.call("add_code_cell", map[string]any{"cellIndex": -1, "language": "python", "code": code}).String("cell_id")
	if id == "" {
		s.Fatal("a new cell has no id")
	}
	return id
}

// run runs a cell and returns the answer.
func (s *stage) run(id string) harness.Answer {
	s.Helper()
	return s.call("run_code_cell", map[string]any{"cellId": id})
}

// cells returns the sources of all cells as get_cells shows them.
func (s *stage) cells() []string {
	s.Helper()
	a := s.call("get_cells", map[string]any{})
	raw, err := json.Marshal(a.Fields["cells"])
	s.must(err)
	var cells []struct{ Source string }
	s.must(json.Unmarshal(raw, &cells))
	var sources []string
	for _, c := range cells {
		sources = append(sources, c.Source)
	}
	return sources
}

// sees checks what a person reads in the page.
func (s *stage) sees(tab *Tab, selector string, want ...string) {
	s.Helper()
	text, err := tab.Text(s.ctx, selector)
	s.must(err)
	for _, each := range want {
		if !strings.Contains(text, each) {
			s.Errorf("%s shows %q, not %q", selector, text, each)
		}
	}
}

// has checks that a text has others in it.
func (s *stage) has(text string, want ...string) {
	s.Helper()
	for _, each := range want {
		if !strings.Contains(text, each) {
			s.Errorf("%q is not in %q", each, text)
		}
	}
}
