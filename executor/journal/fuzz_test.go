package journal

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/memorydir"
)

// FuzzFolder opens a journal whose execution has any state, two segments of any content, and any
// reserve and tombstones, as code on the VM may have written them. All events can be read, each
// page moves on, and an equal submit still runs nothing.
func FuzzFolder(f *testing.F) {
	state := `{"execution_id":"e","request_id":"r","status":"%s","created_at":"2026-11-22T00:00:00Z","next_offset":3,"code_sha256":""}` + "\n"
	first := `{"offset":0,"type":"stream","text":"a"}` + "\n" + `{"offset":1,"type":"gap","events":2,"bytes":9}` + "\n"
	f.Add([]byte(fmt.Sprintf(state, "succeeded")), []byte(first), []byte(`{"offset":3,"type":"stream","text":"b"}`+"\n"), int64(3), int64(80), []byte{}, []byte{})
	f.Add([]byte(fmt.Sprintf(state, "running")), []byte(first+`{"offset":`), []byte(`{"offset":-5}`+"\n"), int64(-3), int64(-80), []byte(fmt.Sprintf(state, "queued")), []byte(`{"id":"p","r":"q","o":-3,"l":-5}`+"\n{\n"))
	f.Add([]byte("{}\n"), []byte("\n\n"), []byte(`{"offset":9223372036854775807,"events":9223372036854775807}`+"\n"), int64(0), int64(0), []byte(fmt.Sprintf(state, "succeeded")+"\x00{"), []byte(`{"id":"e","r":"r"}`))
	f.Add([]byte(fmt.Sprintf(state, "failed")+`{"execution_id":"../../x","request_id":"r"}`+"\n"), []byte{}, []byte{}, int64(math.MaxInt64), int64(math.MinInt64), []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, state, first, second []byte, offset, start int64, reserved, past []byte) {
		dir := memorydir.New(t)
		for name, text := range map[string][]byte{
			"e/" + stateFileName: state, "e/" + fmt.Sprintf(segmentName, 0, 0): first, "e/" + fmt.Sprintf(segmentName, offset, start): second,
			reserveFile: reserved, newerFile: past,
		} {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		j := openIn(t, dir, Limits{})
		defer func() { j.tombstones.close(); j.reserve.file.Close() }()
		for _, e := range j.List(10) {
			readToEnd(t, j, e.ExecutionID)
		}
		for _, id := range []string{"e", "p", "q"} {
			readToEnd(t, j, id)
		}
		if r := j.ByRequest("r"); r != nil {
			if _, err := j.Submitted(contract.Submit{RequestID: "r", Code: "1"}); err != nil && err != ErrConflict {
				t.Error(err)
			}
		}
	})
}

// readToEnd reads the events of an execution in small pages.
func readToEnd(t *testing.T, j *Journal, id string) {
	t.Helper()
	offset := int64(0)
	for range 1000 {
		e, err := j.Read(t.Context(), id, ReadRequest{Offset: offset, MaxBytes: 1})
		if err != nil || e.End {
			return
		}
		if e.NextOffset <= offset {
			t.Fatalf("%q: the page from %d on ends at %d: %+v", id, offset, e.NextOffset, e.Events)
		}
		offset = e.NextOffset
	}
}
