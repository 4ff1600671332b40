//go:build chromium

package browser

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/e2e/standin"
)

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

// What the page does is what the stand-in tab of the other tests does: the same tools with
// the same schemas.
func TestThePageHasTheToolsOfTheStandIn(t *testing.T) {
	s := newStage(t)
	tab := s.connect(map[string]any{})
	var page []map[string]any
	s.must(tab.Eval(s.ctx, "import('/page/mcp.js').then((m) => m.toolsOf(null).map((t) => t.shown))", &page))
	byName := func(tools []map[string]any) string {
		slices.SortFunc(tools, func(a, b map[string]any) int {
			return strings.Compare(fmt.Sprint(a["name"]), fmt.Sprint(b["name"]))
		})
		text, err := json.MarshalIndent(tools, "", " ")
		s.must(err)
		return string(text)
	}
	if got, want := byName(page), byName(standin.Tools()); got != want {
		t.Errorf("the page has %s, the stand-in %s", got, want)
	}
}
