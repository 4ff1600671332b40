package uploads

import (
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/contract"
)

func TestADeletedJournalIsRestoredWithTheNextPart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "upload")
	rec := record{UploadStart: contract.UploadStart{Path: "f", SizeBytes: 100}}
	j := &journal{dir: dir}
	if err := j.save(rec); err != nil {
		t.Fatal(err)
	}
	var got ranges
	for _, s := range []span{{0, 10}, {20, 30}} {
		if err := j.append(got.add(s), s); err != nil {
			t.Fatal(err)
		}
		got = got.add(s)
	}
	if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
		t.Fatal(err)
	}
	if err := j.restoreIfDeleted(rec, got); err != nil {
		t.Fatal(err)
	}
	if err := j.append(got.add(span{10, 20}), span{10, 20}); err != nil {
		t.Fatal(err)
	}
	j.close()
	_, again, restored, err := openJournal(dir)
	if err != nil || again.SizeBytes != 100 || restored.bytes() != 30 {
		t.Errorf("%+v, %+v, %v", again, restored, err)
	}
}
