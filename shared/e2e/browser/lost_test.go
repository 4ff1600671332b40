//go:build chromium

package browser

import (
	"os"
	"path/filepath"
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
