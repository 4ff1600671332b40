package arch

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// SECURITY.md names the tests that hold its promises.
func TestTheTestsThatSECURITYNamesExist(t *testing.T) {
	defined := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for _, folder := range []string{"executor", "relay", "shared", "colab-bootstrap", "config"} {
		err := filepath.WalkDir(filepath.Join("../..", folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, match := range function.FindAllSubmatch(source, -1) {
				defined[string(match[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("../../.github/SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		cells := bytes.Split(line, []byte("|"))
		if len(cells) != 4 || bytes.HasPrefix(line, []byte("|---")) || bytes.HasPrefix(line, []byte("| promise |")) {
			continue
		}
		names := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllSubmatch(cells[2], -1)
		if len(names) == 0 {
			t.Errorf("no test holds the promise %q", bytes.TrimSpace(cells[1]))
		}
		for _, name := range names {
			if !defined[string(name[1])] {
				t.Errorf("%s does not exist", name[1])
			}
		}
	}
}
