package keep

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAsideKeepsTheFileUnderAnotherName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list.json")
	kept := map[string]bool{}
	for _, content := range []string{"first", "second"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		to, err := Aside(path)
		if err != nil || !strings.HasPrefix(to, path+".damaged-") || kept[to] {
			t.Fatalf("moved to %q, %v", to, err)
		}
		kept[to] = true
		if text, err := os.ReadFile(to); err != nil || string(text) != content {
			t.Errorf("%q has %q, %v; want %q", to, text, err, content)
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the old name still exists: %v", err)
		}
	}
}

func TestAsideOfNothingIsAnError(t *testing.T) {
	if kept, err := Aside(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) || kept != "" {
		t.Errorf("%q, %v", kept, err)
	}
}
