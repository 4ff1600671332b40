package damage

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/aside"
	"colabrelay/shared/bounded"
	"colabrelay/shared/memorydir"
	"colabrelay/shared/tier"
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
	kept, moved := aside.Move(path)
	return "", errors.Join(err, moved).Error() + kept
}

func folder(t testing.TB, dir string) {
	mustDo(t, os.WriteFile(filepath.Join(dir, "a.txt"), []byte("content"), 0o600))
	mustDo(t, os.WriteFile(filepath.Join(dir, "b.txt"), []byte("neighbour"), 0o600))
}

// faults are programs that do one thing wrong, and what the test must say of it.
var faults = map[string]struct {
	use  func(t testing.TB, dir string) (found, said string)
	want string
}{
	"silent":    {func(t testing.TB, dir string) (string, string) { found, _ := careful(t, dir); return found, "" }, "nothing names the file"},
	"deleting":  {deleting, "what was in place of the file is gone"},
	"greedy":    {greedy, "reading allocated"},
	"sweeping":  {sweeping, "the content of the other file \"b.txt\" is gone"},
	"crashing":  {crashing, "slice bounds out of range"},
	"unmindful": {func(testing.TB, string) (string, string) { return "content", "" }, ""}, // it needs no file
}

func deleting(t testing.TB, dir string) (string, string) {
	found, said := careful(t, dir)
	if said != "" {
		old, err := filepath.Glob(filepath.Join(dir, "*.damaged-*"))
		mustDo(t, err)
		mustDo(t, os.RemoveAll(old[0]))
	}
	return found, said
}

func greedy(t testing.TB, dir string) (string, string) {
	if info, err := os.Stat(filepath.Join(dir, "a.txt")); err == nil && info.Mode().IsRegular() {
		_, err := os.ReadFile(filepath.Join(dir, "a.txt"))
		mustDo(t, err)
	}
	return careful(t, dir)
}

func sweeping(t testing.TB, dir string) (string, string) {
	found, said := careful(t, dir)
	if said != "" {
		mustDo(t, os.Remove(filepath.Join(dir, "b.txt")))
	}
	return found, said
}

func crashing(t testing.TB, dir string) (string, string) {
	found, said := careful(t, dir)
	return string([]byte(found)[0]) + found[1:], said
}

func TestACarefulProgramPasses(t *testing.T) {
	Files{Make: folder, Use: careful, Damage: []string{"*.txt"}}.Test(t)
}

// Each fault runs in a process of its own, because its test must fail.
func TestEachFaultIsFound(t *testing.T) {
	tier.Long(t)
	if name := os.Getenv("DAMAGE_FAULT"); name != "" {
		Files{Make: folder, Use: faults[name].use, Damage: []string{"a.txt"}}.Test(t)
		return
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEachFaultIsFound$")
			cmd.Env = append(os.Environ(), "DAMAGE_FAULT="+name, memorydir.Parent+"="+memorydir.New(t))
			out, err := cmd.CombinedOutput()
			if (err == nil) != (fault.want == "") || !strings.Contains(string(out), fault.want) {
				t.Errorf("%v, want a failure with %q:\n%.2000s", err, fault.want, out)
			}
		})
	}
}
