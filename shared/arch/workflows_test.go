package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// workflows returns the lines of each GitHub workflow, by its file.
func workflows(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(top, ".github", "workflows", "*"))
	if err != nil || len(files) < 2 {
		t.Fatalf("the workflows are %q, %v", files, err)
	}
	lines := map[string][]string{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines[filepath.Base(file)] = strings.Split(string(b), "\n")
	}
	return lines
}

// pinned is an action by the hash of a commit, and its version for people. A tag can be
// moved to another commit.
var pinned = regexp.MustCompile(`uses: ([\w./-]+)@([0-9a-f]{40}) # v\d+\.\d+\.\d+$`)

func TestWorkflowsPinTheirActions(t *testing.T) {
	seen := map[string]string{}
	for file, lines := range workflows(t) {
		for _, line := range lines {
			if !strings.Contains(line, "uses:") {
				continue
			}
			match := pinned.FindStringSubmatch(line)
			if match == nil {
				t.Errorf("%s: %q: name the action by the 40 hex digits of a commit, with its version in a comment", file, strings.TrimSpace(line))
				continue
			}
			if hash, ok := seen[match[1]]; ok && hash != match[2] {
				t.Errorf("%s: %s has two hashes in the workflows", file, match[1])
			}
			seen[match[1]] = match[2]
		}
	}
}

// Without a top-level key, a workflow's token may have every right on the repository.
func TestWorkflowsLimitTheirRights(t *testing.T) {
	for file, lines := range workflows(t) {
		if !strings.Contains("\n"+strings.Join(lines, "\n"), "\npermissions:") {
			t.Errorf("%s: permissions: is missing at the top level", file)
		}
	}
}
