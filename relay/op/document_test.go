package op

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"colabrelay/relay/toolsets"
)

const (
	toolsPage   = "../../docs/tools.md"
	tableBegins = "<!-- tools:begin -->\n"
	tableEnds   = "<!-- tools:end -->\n"
)

// TestTheDocumentListsTheTools: go test ./relay/op -update rewrites the table.
func TestTheDocumentListsTheTools(t *testing.T) {
	var table strings.Builder
	table.WriteString("| tool | command | what it does |\n|---|---|---|\n")
	for _, tool := range served(toolsets.All) {
		if tool.summary == "" || strings.ContainsAny(tool.summary, "|\n") {
			t.Errorf("the summary of %s is %q", tool.def.Name, tool.summary)
		}
		command := ""
		if name := tool.Command.Name; name != "" {
			command = "`" + name + "`"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", tool.def.Name, command, tool.summary)
	}
	b, err := os.ReadFile(toolsPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, began := strings.Cut(string(b), tableBegins)
	got, after, ended := strings.Cut(rest, tableEnds)
	if !began || !ended {
		t.Fatalf("docs/tools.md has no table between %q and %q", tableBegins, tableEnds)
	}
	if *update {
		if err := os.WriteFile(toolsPage, []byte(before+tableBegins+table.String()+tableEnds+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != table.String() {
		t.Errorf("the table of tools in docs/tools.md differs (go test ./relay/op -update writes it):\n%s\nwant:\n%s", got, table.String())
	}
}
