package damage

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/bounded"
	"colabrelay/shared/keep"
)

// careful is a program that does everything right with a file.
func careful(_ testing.TB, dir string) (found, said string) {
	path := filepath.Join(dir, "a.txt")
	text, err := bounded.ReadFile(path, 100)
	if err == nil && strings.TrimSpace(string(text)) != "content" {
		err = errors.New("damaged")
	}
	if err == nil || errors.Is(err, os.ErrNotExist) && look(path).info == nil {
		return string(text), ""
	}
	kept, moved := keep.Aside(path)
	return "", errors.Join(err, moved).Error() + kept
}

func folder(t testing.TB, dir string) {
	mustDo(t, os.WriteFile(filepath.Join(dir, "a.txt"), []byte("content"), 0o600))
	mustDo(t, os.WriteFile(filepath.Join(dir, "b.txt"), []byte("neighbour"), 0o600))
}

func TestACarefulProgramPasses(t *testing.T) {
	Files{Make: folder, Use: careful, Damage: []string{"*.txt"}}.Test(t)
}
