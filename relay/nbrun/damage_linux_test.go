package nbrun

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/relay/checkpoint"
	"colabrelay/shared/damage"
)

// A damaged record is never continued and never replaced unasked. A person who starts anew
// keeps it under another name.
func TestDamagedRecordsAreReportedAndKept(t *testing.T) {
	const text = `{"cells":[{"cell_type":"code","execution_count":null,"id":"a","metadata":{},"outputs":[],"source":["1"]}],"metadata":{},"nbformat":4,"nbformat_minor":5}`
	damage.Files{
		Make: func(t testing.TB, dir string) {
			path := filepath.Join(dir, "book.ipynb")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := openRecord(dir, path, false)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			r.record.Runtime = "the instance"
			if err := r.save(); err != nil {
				t.Fatal(err)
			}
		},
		Use: func(t testing.TB, dir string) (found, said string) {
			s := Defaults(filepath.Join(dir, "book.ipynb"))
			r, err := Open(dir, s)
			if err == nil {
				r.Close()
				return r.record.Runtime, ""
			}
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("the error is not %v but %v", ErrDamaged, err)
			}
			s.Restart = true
			if r, err = Open(dir, s); err != nil {
				t.Fatalf("a new run: %v", err)
			}
			defer r.Close()
			return "", strings.Join(r.notes, "\n")
		},
		Damage:    []string{"notebook_book_*.json"},
		Rewritten: []string{"*.lock"},
		MaxAlloc:  10 * checkpoint.MaxBytes, // two reads
		Cuts:      200,
	}.Test(t)
}
