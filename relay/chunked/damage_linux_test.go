package chunked

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/relay/checkpoint"
	"colabrelay/shared/damage"
)

// A damaged record is never continued and never replaced unasked. A person who starts anew
// keeps it under another name.
func TestDamagedRecordsAreReportedAndKept(t *testing.T) {
	damage.Files{
		Make: func(t testing.TB, dir string) {
			record := newRecord(spec("import time", "result = i", 20))
			record.Done, record.Ranges = 5, []Range{{From: 0, To: 5, KernelID: "k", InstanceID: "i"}}
			for _, name := range []string{"run", "another run"} {
				if _, err := checkpoint.Save(dir, name, record); err != nil {
					t.Fatal(err)
				}
			}
		},
		Use: func(t testing.TB, dir string) (found, said string) {
			s := spec("import time", "result = i", 20)
			r, err := Open(dir, s)
			if err == nil {
				r.Close()
				return fmt.Sprintf("%+v", r.record.Ranges), filepath.Base(r.path)
			}
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNotChunked) && !errors.Is(err, ErrChanged) {
				t.Errorf("not an error of this package: %v", err)
			}
			s.OnChange = Restart
			if r, err = Open(dir, s); err != nil {
				t.Fatalf("a new run: %v", err)
			}
			defer r.Close()
			if r.record.Done != 0 {
				t.Errorf("a new run begins at %d", r.record.Done)
			}
			return "", strings.Join(r.noteTexts(), "\n")
		},
		Damage:    []string{"run.json"},
		Rewritten: []string{"*.lock"},
		MaxAlloc:  10 * checkpoint.MaxBytes, // two reads
		Cuts:      200,
	}.Test(t)
}
