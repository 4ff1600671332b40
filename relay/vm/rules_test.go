package vm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/stacks"
)

// People who only read README read all that `colab-relay vm login` shows.
func TestREADMEHasTheRules(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(stacks.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, points, _ := strings.Cut(Rules, "\n\n")
	for point := range strings.SplitSeq(points, "\n") {
		if !strings.Contains(string(text), "\n"+point+"\n") {
			t.Errorf("README.md lacks the line of rules.go that begins with %.40q", point)
		}
	}
}
