package uploads

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/executor/files"
	"colabrelay/executor/files/filestest"
	"colabrelay/shared/damage"
	"colabrelay/shared/tier"
)

// inboxIn opens the uploads of a folder with both the state and the user's files.
func inboxIn(t testing.TB, dir string) *inbox {
	in := &inbox{t: t, Tree: filestest.Tree{Workdir: filepath.Join(dir, "work"), State: filepath.Join(dir, "state")}}
	must(t, os.MkdirAll(in.Workdir, 0o700))
	must(t, os.MkdirAll(in.State, 0o700))
	var err error
	in.roots, err = files.Open(in.Workdir, nil, in.State, nil)
	must(t, err)
	in.open()
	return in
}

func TestDamagedRecordsOfUploadsAreKeptAndReported(t *testing.T) {
	tier.Long(t)
	damage.Files{
		Make: func(t testing.TB, dir string) {
			in := inboxIn(t, dir)
			in.send("whole", body(20), true)
			up := in.start("x", body(100), true)
			in.put(up.UploadID, 0, body(100)[:50])
			in.stop()
			left := leftovers{path: filepath.Join(in.State, "uploads", leftoversFile)}
			left.add(in.Workdir, newBatchPartName())
			left.file.Close()
		},
		Use: func(t testing.TB, dir string) (found, said string) {
			in := inboxIn(t, dir)
			again := in.start("x", body(100), true)
			found = fmt.Sprint(again.ReceivedBytes, " bytes, ", in.start("whole", body(20), true).Status)
			in.send("x", body(100), true)
			if got, err := os.ReadFile(filepath.Join(in.Workdir, "x")); err != nil || !bytes.Equal(got, body(100)) {
				t.Errorf("the upload made %d bytes, %v", len(got), err)
			}
			in.send("new", body(30), true)
			in.stop()
			return found, in.log.String()
		},
		Damage:    []string{"state/uploads/*/upload.json", "state/uploads/*/ranges", "state/uploads/batch.ndjson"},
		Rewritten: []string{"state/uploads/*/*", "state/uploads/batch.ndjson", "work/.*"},
		// The bytes of lost ranges are sent again; batch.ndjson lists only what to delete.
		Worthless: []string{"state/uploads/*/ranges", "state/uploads/batch.ndjson"},
		Cuts:      40,
	}.Test(t)
}
