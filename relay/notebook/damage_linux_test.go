package notebook

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"colabrelay/shared/damage"
	"colabrelay/shared/tier"
)

// A damaged notebook belongs to a person: it is neither changed nor renamed.
func TestADamagedNotebookIsReportedAndNotChanged(t *testing.T) {
	tier.Long(t)
	damage.Files{
		Make: func(t testing.TB, dir string) {
			d := New()
			for _, source := range []string{"print(1)", "print(2)"} {
				if _, err := d.Insert(-1, NewCell{Type: Code, Source: source}); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{"n.ipynb", "other.ipynb"} {
				if err := os.WriteFile(filepath.Join(dir, name), d.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		},
		Use: func(t testing.TB, dir string) (found, said string) {
			path := filepath.Join(dir, "n.ipynb")
			if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() { // else it may be in the middle of a save
				if err := os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
			f, err := OpenFile(path, filepath.Join(dir, "locks"))
			if err != nil {
				return "", err.Error()
			}
			d, err := f.Read()
			if err != nil {
				_, editErr := f.Edit(t.Context(), "", func(*Document) error { t.Error("a damaged notebook is edited"); return nil })
				if editErr == nil {
					t.Error("an edit of a damaged notebook succeeds")
				}
				return "", fmt.Sprintf("%q: %v", path, err) // as the callers say it
			}
			for i := range d.Len() {
				found += fmt.Sprintln(d.Cell(i).Source)
			}
			return found, ""
		},
		Damage:    []string{"n.ipynb"},
		Rewritten: []string{"locks/*"},
		MaxAlloc:  5 * MaxBytes,
	}.Test(t)
}
