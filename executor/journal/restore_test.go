package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/contract"
)

// When Restore returns, the next executor knows every request, whether the folder was deleted or
// moved away, as a desktop's trash does it.
func TestWhatRanIsOnDiskWhenRestoreReturns(t *testing.T) {
	for name, lose := range map[string]func(dir string) error{
		"deleted": os.RemoveAll,
		"moved":   func(dir string) error { return os.Rename(dir, dir+".trash") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "executions")
			j := openIn(t, dir, Limits{Kept: 2, Tombstones: 1})
			submits, ids := map[string]contract.Submit{}, map[string]string{}
			for n := range 4 { // the first two become tombstones
				s := contract.Submit{RequestID: fmt.Sprint("past-", n), Code: "1"}
				submits[s.RequestID], ids[s.RequestID] = s, finished(t, j, s, "text").ID
			}
			s := contract.Submit{RequestID: "running", Code: "2"}
			running := create(t, j, s)
			submits[s.RequestID], ids[s.RequestID] = s, running.ID
			if err := lose(dir); err != nil {
				t.Fatal(err)
			}
			missing, err := j.Restore()
			if err != nil || missing != 3 {
				t.Errorf("Restore gives %d, %v", missing, err)
			}
			if missing, err := j.Restore(); err != nil || missing != 0 {
				t.Errorf("the second Restore gives %d, %v", missing, err)
			}
			again := openIn(t, dir, Limits{Kept: 2, Tombstones: 2}) // the first one was killed
			for id, s := range submits {
				wantKnown(t, again, "restored", s, ids[id])
			}
		})
	}
}
