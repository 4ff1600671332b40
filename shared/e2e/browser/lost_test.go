//go:build chromium

package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/e2e/harness"
)

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

// A reload of the page is a lost tab, whose token is used.
func TestTheTabIsReloaded(t *testing.T) {
	s := newStage(t)
	tab := s.connect(map[string]any{})
	s.add("kept = 1")
	s.must(tab.Reload(s.ctx))
	s.must(tab.Await(s.ctx, "document.body?.dataset.ready && document.querySelector('#status').dataset.state === 'off'"))
	s.must(tab.Click(s.ctx, "#connect"))
	s.must(tab.Await(s.ctx, "document.querySelector('#status').dataset.state === 'lost'"))
	s.has(tab.Logged(), "Unexpected response code: 403")
	again := s.connect(map[string]any{})
	if got := s.cells(); !slices.Equal(got, []string{"", "kept = 1"}) {
		t.Errorf("the cells are %q", got)
	}
	s.must(again.Close(s.ctx))
}

// A second tab with a good token is refused, and the first one is not disturbed.
func TestASecondTab(t *testing.T) {
	s := newStage(t)
	tab := s.connect(map[string]any{})
	second, err := s.tools.Open(s.ctx, tab.URL)
	s.must(err)
	s.tabs = append(s.tabs, second)
	s.must(second.Click(s.ctx, "#connect"))
	s.must(second.Await(s.ctx, "document.querySelector('#status').dataset.state === 'lost'"))
	s.sees(second, "#status", "no connection to a relay: 1013")
	s.has(s.run(s.add("print('undisturbed')")).Text, "undisturbed")
	s.sees(tab, "#status", "connected to a relay")
}

// The person declines, and later accepts the dialog that the same link shows after a reload.
func TestTheDialogIsDeclined(t *testing.T) {
	s := newStage(t)
	call := s.begin("open_colab_browser_connection", map[string]any{})
	tab := s.opened()
	s.must(tab.Click(s.ctx, "#decline"))
	s.sees(tab, "#status", "declined")
	s.must(tab.Reload(s.ctx))
	s.must(tab.Confirm(s.ctx))
	s.end(call)
}

// Another process of this user sees the connection, and ends it.
func TestAnotherProcessEndsTheConnection(t *testing.T) {
	s := newStage(t)
	tab := s.connect(map[string]any{})
	s.has(s.command("page", "status", "--json"), `"tab": "connected"`, `"connected_since": "`, fmt.Sprintf(`"pid": %d`, s.host.PID()))
	s.has(s.command("page", "close"), fmt.Sprintf("Closed the connection of the relay with the pid %d", s.host.PID()))
	s.must(tab.Await(s.ctx, "document.querySelector('#status').dataset.state === 'lost'"))
	if got := <-s.begin("get_cells", map[string]any{}); got.err != nil || !got.IsError {
		t.Errorf("a call without a tab: %v %s", got.err, got.Text)
	}
	s.connect(map[string]any{})
	s.cells()
}
