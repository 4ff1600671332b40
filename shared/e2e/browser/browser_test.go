//go:build chromium

package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/shared/e2e/harness"
)

// Other pages that learned the port and the token can't connect: the browser says whose they
// are. The person's page connects afterwards with the same token.
func TestPagesOfOthersAreRefused(t *testing.T) {
	s := newStage(t)
	call := s.begin("open_colab_browser_connection", map[string]any{})
	tab := s.opened()
	u, err := url.Parse(tab.URL)
	s.must(err)
	fragment := "#" + u.EscapedFragment()
	for origin, address := range map[string]string{
		"https://evil.example":                          "https://evil.example/page/dial.html",
		"https://colab.research.google.com.example":     "https://colab.research.google.com.example/page/dial.html",
		"https://evilcolab.research.google.com.example": "https://evilcolab.research.google.com.example/page/dial.html",
		"http://" + Host:                                "http://" + Host + "/page/dial.html",
		"null":                                          page + "page/dial.html?frame",
	} {
		hostile, err := s.tools.Open(s.ctx, address+fragment)
		s.must(err)
		s.must(hostile.Await(s.ctx, "document.title.startsWith('closed') || document.title.startsWith('open')"))
		title := ""
		s.must(hostile.Eval(s.ctx, "document.title", &title))
		if title != "closed from "+origin+": 1006" {
			t.Errorf("%s: the page says %q", address, title)
		}
		// The console of the frame is not that of its page.
		if log := hostile.Logged(); origin != "null" && !strings.Contains(log, "Unexpected response code: 403") {
			t.Errorf("%s: the browser's console says %q", address, log)
		}
	}
	s.must(tab.Confirm(s.ctx))
	s.end(call)
	for _, hidden := range []string{u.EscapedFragment(), strings.TrimPrefix(strings.Split(u.EscapedFragment(), "&")[0], "mcpProxyToken=")} {
		if strings.Contains(s.host.Stderr.String(), hidden) {
			t.Errorf("the relay logged %q", hidden)
		}
	}
}

// Chromium's arguments, which other users of the computer can read, hold no token.
func TestTheTokenIsInNoArgument(t *testing.T) {
	s := newStage(t)
	tab := s.connect(map[string]any{})
	u, err := url.Parse(tab.URL)
	s.must(err)
	token, err := url.ParseQuery(u.EscapedFragment())
	s.must(err)
	all, err := arguments()
	s.must(err)
	if !strings.Contains(all, "http://127.0.0.1:") {
		t.Errorf("no program has the link as its argument:\n%s", all)
	}
	if strings.Contains(all, token.Get("mcpProxyToken")) {
		t.Error("a program has the token among its arguments")
	}
}

// arguments returns those of all programs, as other users of this computer see them.
func arguments() (string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		all.WriteString(strings.ReplaceAll(string(text), "\x00", " ") + "\n")
	}
	return all.String(), nil
}

// The person closes the tab while a cell runs. The agent is told that the cell may still be running,
// and the next connection finds it, with its output.
func TestTheTabIsClosedInACall(t *testing.T) {
	s := newStage(t)
	tab := s.connect(map[string]any{"notebook_url": page + "drive/kept"})
	dir := t.TempDir()
	began, proceed := filepath.Join(dir, "began"), filepath.Join(dir, "proceed")
	id := s.add("import os, time\nopen('" + began + "', 'w').close()\nwhile not os.path.exists('" + proceed + "'): time.sleep(0.02)\nprint('ran to its end')\nran = 'yes'")
	call := s.begin("run_code_cell", map[string]any{"cellId": id})
	s.must(harness.Poll(s.ctx, func() (bool, error) { _, err := os.Stat(began); return err == nil, nil }))
	s.must(tab.Close(s.ctx))
	if got := <-call; got.err != nil || !got.IsError || !strings.Contains(got.Text, "may still be running") {
		t.Errorf("the call in which the tab was closed: %v %s", got.err, got.Text)
	}
	if got := <-s.begin("get_cells", map[string]any{}); got.err != nil || !got.IsError || !strings.Contains(got.Text, "open_colab_browser_connection") {
		t.Errorf("a call without a tab: %v %s", got.err, got.Text)
	}
	s.must(os.WriteFile(proceed, nil, 0o600))

	again := s.connect(map[string]any{"notebook_url": page + "drive/kept"})
	if again.URL == tab.URL {
		t.Error("the second tab has the token of the first")
	}
	if got := s.cells(); len(got) != 2 || !strings.HasPrefix(got[1], "import os") {
		t.Errorf("the cells are %q", got)
	}
	s.has(s.run(s.add("ran")).Text, "yes") // after the cell, which ran on
}

// An agent works in the notebook that the person sees.
func TestAnAgentWorksInTheNotebook(t *testing.T) {
	s := newStage(t)
	tab := s.connect(map[string]any{})
	s.sees(tab, "#title", "empty.ipynb")
	s.sees(tab, "#status", "connected to a relay")
	if got := s.cells(); !slices.Equal(got, []string{""}) {
		t.Errorf("a new notebook has the cells %q", got)
	}

	title := s.call("add_text_cell", map[string]any{"cellIndex": 0, "content": "# A notebook\n\nwritten by an *agent*"}).String("cell_id")
	answer := s.add("x = 6 * 7\nprint('the answer is', x)")
	s.has(s.run(answer).Text, "the answer is 42")
	s.sees(tab, "#cell-"+title, "A notebook")
	s.sees(tab, "#cell-"+answer, "[1]", "print('the answer is', x)", "the answer is 42")

	s.call("update_cell", map[string]any{"cellId": answer, "content": "print('now', x + 1)"})
	s.has(s.run(answer).Text, "now 43") // the kernel keeps its variables
	s.sees(tab, "#cell-"+answer, "[2]", "now 43")

	failing := s.add("1 / 0")
	if got := <-s.begin("run_code_cell", map[string]any{"cellId": failing}); got.err != nil || !strings.Contains(got.Text, "ZeroDivisionError") {
		t.Errorf("a cell that fails: %v %s", got.err, got.Text)
	}
	s.sees(tab, "#cell-"+failing, "ZeroDivisionError")

	s.call("move_cell", map[string]any{"cellId": failing, "cellIndex": 0})
	s.call("delete_cell", map[string]any{"cellId": title})
	want := []string{"1 / 0", "", "print('now', x + 1)"}
	if got := s.cells(); !slices.Equal(got, want) {
		t.Errorf("get_cells has %q, want %q", got, want)
	}
	var shown []string
	s.must(tab.Eval(s.ctx, "[...document.querySelectorAll('.source pre')].map((e) => e.textContent)", &shown))
	if !slices.Equal(shown, want) {
		t.Errorf("the page has %q, want %q", shown, want)
	}
}

// Outputs of every kind come from a real kernel, through the page, to the agent.
func TestOutputsOfARealKernel(t *testing.T) {
	s := newStage(t)
	s.connect(map[string]any{})
	picture := s.run(s.add("import matplotlib.pyplot as plt\nplt.plot([3, 1, 2])\nplt.show()"))
	if len(picture.Images) != 1 || picture.Images[0].MIMEType != "image/png" {
		t.Errorf("the answer has the images %v: %s", picture.Images, picture.Text)
	}
	s.has(s.run(s.add("import sys\nprint('to stderr', file=sys.stderr)\n{'a': [1, 2]}")).Text, "to stderr", "{'a': [1, 2]}")
	s.has(s.run(s.add("for i in range(20000): print('line', i)")).Text, "line 0", "line 19999")
}

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
