package enrolldir

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/memorydir"
)

// FuzzFiles reads any files as the grant and the process id of an enrollment. A grant is what
// the file has, within its bound, and only a number is a process id.
func FuzzFiles(f *testing.F) {
	f.Add([]byte("sealed-grant"), []byte("4711\n"), int64(64))
	f.Add([]byte{}, []byte("-1"), int64(0))
	f.Add(bytes.Repeat([]byte("g"), 65), []byte("1e3"), int64(64))
	f.Add([]byte("\xff\x00"), []byte(`"7"`), int64(-1))
	f.Add([]byte("x"), []byte("99999999999999999999"), int64(1<<40))
	path := memorydir.New(f)
	f.Fuzz(func(t *testing.T, grant, pid []byte, limit int64) {
		for name, text := range map[string][]byte{grantFile: grant, pidFile: pid} {
			if err := os.WriteFile(filepath.Join(path, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("waited for a grant that is there"))
		limit = min(limit, 1<<20)
		text, err := (&Dir{path: path}).AwaitGrant(ctx, limit)
		if fits := int64(len(grant)) <= limit; fits != (err == nil) || fits && text != string(grant) || errors.Is(err, context.Cause(ctx)) {
			t.Errorf("%q within %d bytes is %q, %v", grant, limit, text, err)
		}
		var want int
		if n := holder(path); n != 0 && (json.Unmarshal(pid, &want) != nil || n != want || len(pid) > 32) {
			t.Errorf("%q names the process %d", pid, n)
		}
		if held(path) {
			t.Error("a folder that nobody locked is held")
		}
	})
}
