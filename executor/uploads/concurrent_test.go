package uploads

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// folders checks the number of uploads in the state dir.
func (in *inbox) folders(want int) {
	in.t.Helper()
	entries, err := os.ReadDir(filepath.Join(in.State, "uploads"))
	must(in.t, err)
	if len(entries) != want {
		in.t.Errorf("%d uploads are in the state dir, want %d", len(entries), want)
	}
}

func TestUnusedUploadsAreDropped(t *testing.T) {
	in := newInbox(t)
	done := in.send("done", body(10), false)
	old := in.start("old", body(100), false)
	in.put(old.UploadID, 0, body(50))
	long := time.Now().Add(-keepUploads - time.Hour)
	in.stop()
	for _, id := range []string{old.UploadID, done.UploadID} {
		dir := filepath.Join(in.State, "uploads", id)
		os.Chtimes(filepath.Join(dir, rangesFile), long, long) // fails for a committed one, which has none
		must(t, os.Chtimes(dir, long, long))
	}
	young := in.start("young", body(100), false)
	in.open()
	if _, err := in.Get(t.Context(), old.UploadID, 0); !errors.Is(err, ErrNoUpload) {
		t.Errorf("an old upload: %v, want %v", err, ErrNoUpload)
	}
	if _, err := in.Get(t.Context(), young.UploadID, 0); err != nil {
		t.Errorf("a young upload: %v", err)
	}
	in.folders(1)
	if n := len(in.parts(in.Workdir)); n != 1 {
		t.Errorf("%d parts are there, want 1", n)
	}
	must(t, os.Remove(in.parts(in.Workdir)[0]))
	in.holds("done", body(10))
}
