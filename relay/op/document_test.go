package op

import (
	"os"
	"strings"
	"testing"

	"colabrelay/relay/toolsets"
)

func TestTheDocumentListsTheTools(t *testing.T) {
	page, err := os.ReadFile("../../docs/tools.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "| tool | command | what it does |\n|---|---|---|\n")
	for _, tool := range served(toolsets.All) {
		row := "| `" + tool.tool + "` | "
		if name := tool.Command.Name; name != "" {
			row += "`" + name + "` "
		}
		if line, after, _ := strings.Cut(rest, "\n"); strings.HasPrefix(line, row) {
			rest = after
			continue
		}
		t.Fatalf("the table of tools in docs/tools.md has no row %q before:\n%.300s", row, rest)
	}
	if strings.HasPrefix(rest, "|") {
		t.Errorf("the table of tools in docs/tools.md has a tool that there is not:\n%.300s", rest)
	}
}
