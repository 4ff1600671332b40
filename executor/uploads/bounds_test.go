package uploads

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// The last name that is tried is taken by an upload, and the next upload is refused.
func TestNumberedNamesAreTriedUpToTheirBound(t *testing.T) {
	in := newInbox(t)
	for n := range maxTaken - 1 {
		must(t, os.WriteFile(filepath.Join(in.Workdir, filename.Numbered("x.csv", n)), nil, 0o600))
	}
	last := filepath.Join(in.Workdir, filename.Numbered("x.csv", maxTaken-1))
	if out := in.send("x.csv", body(10), false); out.Path != last {
		t.Errorf("the upload is at %q, want %q", out.Path, last)
	}
	up := in.start("x.csv", body(11), false)
	in.put(up.UploadID, 0, body(11))
	if _, err := in.commit(up.UploadID, body(11)); !errors.Is(err, ErrBadUpload) {
		t.Errorf("with all names taken: %v", err)
	}
}

// An upload.json of the largest size is read, and one that is longer is none.
func TestTheRecordOfAnUploadIsBounded(t *testing.T) {
	for over := range 2 {
		dir := t.TempDir()
		text, err := json.Marshal(record{UploadStart: contract.UploadStart{Path: "x"}})
		must(t, err)
		padded := string(text[:len(text)-1]) + strings.Repeat(" ", maxRecord-len(text)+over) + "}"
		must(t, os.WriteFile(filepath.Join(dir, recordFile), []byte(padded), 0o600))
		if _, _, _, err := openJournal(dir); (err != nil) != (over == 1) {
			t.Errorf("%d past the bound: %v", over, err)
		}
	}
}

// A list of left part files is read up to its bound, so that a damaged one of any size ends.
func TestTheListOfLeftPartFilesIsBounded(t *testing.T) {
	for over := range 2 {
		in := newInbox(t)
		part := filepath.Join(in.Workdir, ".x"+files.PartSuffix)
		must(t, os.WriteFile(part, nil, 0o600))
		line, err := json.Marshal(leftover{Folder: []byte(in.Workdir), Part: filepath.Base(part)})
		must(t, err)
		list := filepath.Join(in.State, "left")
		padding := strings.Repeat(" ", maxLeftovers-len(line)-1+over)
		must(t, os.WriteFile(list, []byte(string(line)+padding+"\n"), 0o600))
		must(t, removeLeftovers(in.roots, list))
		if exists(part) != (over == 1) || exists(list) {
			t.Errorf("%d past the bound: the part file is there: %v, the list: %v", over, exists(part), exists(list))
		}
	}
}
