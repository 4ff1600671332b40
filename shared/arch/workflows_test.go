package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pinned is an action by the hash of a commit, and its version for people. A tag can be
// moved to another commit.
var pinned = regexp.MustCompile(`uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+\n$`)

func TestWorkflowsPinTheirActionsAndLimitTheirRights(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(top, ".github", "workflows", "*"))
	if err != nil || len(files) < 2 {
		t.Fatalf("the workflows are %q, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "\npermissions:") {
			t.Errorf("%s: without permissions: at the top level, its token may have every right", file)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "uses:") && !pinned.MatchString(line) {
				t.Errorf("%s: %q: name the action by the 40 hex digits of a commit, with its version in a comment", file, line)
			}
		}
	}
}
