package uploads

import (
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/ranges"
)

func TestADeletedJournalIsRestoredWithTheNextPart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "upload")
	rec := record{UploadStart: contract.UploadStart{Path: "f", SizeBytes: 100}}
	j := &journal{dir: dir}
	if err := j.save(rec); err != nil {
		t.Fatal(err)
	}
	var got ranges.Set
	for _, r := range []contract.Range{{Offset: 0, Length: 10}, {Offset: 20, Length: 10}} {
		if err := j.append(got.Add(r), r); err != nil {
			t.Fatal(err)
		}
		got = got.Add(r)
	}
	if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
		t.Fatal(err)
	}
	if err := j.restoreIfDeleted(rec, got); err != nil {
		t.Fatal(err)
	}
	between := contract.Range{Offset: 10, Length: 10}
	if err := j.append(got.Add(between), between); err != nil {
		t.Fatal(err)
	}
	j.close()
	_, again, restored, err := openJournal(dir)
	if err != nil || again.SizeBytes != 100 || restored.Total() != 30 {
		t.Errorf("%+v, %+v, %v", again, restored, err)
	}
}
