package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"colabrelay/shared/stacks"
)

// The document says what was tried.
func TestTheDocumentNamesTheInstalledVersions(t *testing.T) {
	var list struct{ Dependencies map[string]string }
	if err := json.Unmarshal([]byte(read(t, "shared/e2e/hosts/node/package.json")), &list); err != nil {
		t.Fatal(err)
	}
	document := read(t, "docs/hosts.md")
	for _, h := range hosts {
		version := strings.TrimPrefix(strings.TrimSuffix(list.Dependencies[h.pkg], "-linux-x64"), "npm:@openai/codex@")
		if want := h.title + " " + version; version == "" || !strings.Contains(document, want) {
			t.Errorf("docs/hosts.md lacks %q", want)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(stacks.Root(), path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The table says what was checked, and make frameworks runs the document's lines.
func TestTheDocumentTellsOfEachFramework(t *testing.T) {
	document := read(t, "docs/frameworks.md")
	for _, h := range frameworks {
		title, err := h.pinned()
		if err != nil {
			t.Fatal(err)
		}
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(title) + ` \| [^|]+ \| ([^|]+) \|`).FindStringSubmatch(document)
		if want := []string{"picture", "dropped", "path", "path, on request"}[h.pictures]; row == nil || row[1] != want {
			t.Errorf("docs/frameworks.md: the row of %s is %q, want %q", title, row, want)
		}
		if _, err := h.lines(); err != nil {
			t.Error(err)
		}
	}
}

func TestAStepIsMadeAgainUntilTheRelayAnswers(t *testing.T) {
	script := []step{{Tool: "a"}, {Tool: "b", Until: "the end"}, {Tool: "c"}}
	timedOut, known := exchange{Texts: []string{"timed out"}}, exchange{Texts: []string{"execution_id=11ea11f4-04f3-4315-aa0c-d059498ce109"}}
	for name, c := range map[string]struct {
		got  []exchange
		done int
	}{
		"at the beginning":       {nil, 0},
		"once":                   {[]exchange{timedOut}, 1},
		"given up":               {[]exchange{timedOut, timedOut, timedOut}, 1},
		"the end":                {[]exchange{timedOut, timedOut, {Texts: []string{"the end"}}}, 2},
		"the id":                 {[]exchange{timedOut, known}, 2},
		"three times and on":     {[]exchange{timedOut, timedOut, timedOut, timedOut, timedOut}, 3},
		"more than it asked for": {[]exchange{timedOut, known, timedOut, timedOut}, 4},
	} {
		if _, done := bySteps(script, c.got); done != c.done {
			t.Errorf("%s: %d steps are done, want %d", name, done, c.done)
		}
	}
}
