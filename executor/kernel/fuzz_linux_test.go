package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/memorydir"
)

// FuzzRecord reads any file as the record of a killed executor's kernel. What is read names a
// process that a signal may go to, and no damaged file stays in the place of the next record.
func FuzzRecord(f *testing.F) {
	for _, seed := range []string{
		`{"pid":4711,"start_time":123456,"boot_id":"0b0b3a0e-0000-4000-8000-000000000000"}`, `{"pid":-1,"start_time":1,"boot_id":"b"}`,
		`{"pid":1,"boot_id":"b"}`, `{"pid":0}`, `{"pid":9223372036854775808,"boot_id":"b"}`, `{"pid":7,"boot_id":""}`, "null", "{", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		path := recordPath(memorydir.New(t))
		must(t, os.WriteFile(path, text, 0o600))
		old, err := readRecord(path)
		if err == nil && (old.PID <= 1 || old.BootID == "") || err != nil && old != (record{}) {
			t.Fatalf("%q is %+v, %v", text, old, err)
		}
		if _, left := os.Lstat(path); !errors.Is(left, os.ErrNotExist) {
			t.Errorf("the record is still there: %v", left)
		}
		kept, globbed := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
		if globbed != nil || (err != nil) != (len(kept) == 1) {
			t.Errorf("%q is left after %v", kept, err)
		}
	})
}
