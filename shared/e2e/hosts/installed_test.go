package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/stacks"
)

// The document says what was tried.
func TestTheDocumentNamesTheInstalledVersions(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join(stacks.Root(), path))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var list struct{ Dependencies map[string]string }
	if err := json.Unmarshal([]byte(read("shared/e2e/hosts/node/package.json")), &list); err != nil {
		t.Fatal(err)
	}
	document := read("docs/hosts.md")
	for _, h := range hosts {
		version := strings.TrimPrefix(strings.TrimSuffix(list.Dependencies[h.pkg], "-linux-x64"), "npm:@openai/codex@")
		if want := h.title + " " + version; version == "" || !strings.Contains(document, want) {
			t.Errorf("docs/hosts.md lacks %q", want)
		}
	}
}
