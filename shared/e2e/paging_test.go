package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

// longOutput is code that prints size bytes that hardly compress, a multiple of 1024.
func longOutput(size int64) string {
	return fmt.Sprintf(`
import base64, os
for n in range(%d):
    print(base64.b85encode(os.urandom(1023 * 4 // 5)).decode()[:1023])
`, size>>10)
}

// Output that is read page by page is sent once for the file and once for the pages, and
// is stored on the laptop once. A page ends with a whole event, so an event that no longer fits
// is sent again with the next page: the pages take up to twice their size, depending on how
// the kernel split the output.
func TestLongOutputIsPagedThroughWithoutMovingItAgainAndAgain(t *testing.T) {
	const longBytes = int64(256 << 10)
	dir := t.TempDir()
	e := borrowExecutor(t, stacks.Old(t))
	wire := newWire(t, e)
	h := startHost(t, "http://"+wire.Addr, harness.HostConfig{Env: []string{"LOCAL_SAVE_DIR=" + dir}})
	id := quick(t, h, longOutput(longBytes)).String("execution_id")
	again := call(t, h, "get_execution", map[string]any{"execution_id": id, "wait_seconds": 45}) // head and tail
	want(t, again, map[string]any{"status": "succeeded", "truncated": true})
	pages, shown := 0, 0
	for offset, more := again.Int("next_offset"), true; more; pages++ {
		a := call(t, h, "get_execution", map[string]any{"execution_id": id, "offset": offset})
		want(t, a, map[string]any{"status": "succeeded"})
		next := a.Int("next_offset")
		if next <= offset {
			t.Fatalf("page %d spans %d to %d: %.500s", pages, offset, next, a.Text)
		}
		shown += len(a.String("stdout"))
		offset, more = next, a.Fields["truncated"] == true
	}
	_, moved, _ := wire.Passed()
	kept := size(t, filepath.Join(dir, "executions"))
	t.Logf("%d pages show %d bytes; %d were sent, %d are stored", pages, shown, moved, kept)
	if int64(shown) < longBytes*99/100 {
		t.Errorf("the pages show %d of %d bytes", shown, longBytes)
	}
	if most := longBytes * 5; moved > most {
		t.Errorf("%d bytes were sent for %d of output, want at most %d", moved, longBytes, most)
	}
	if most := longBytes * 5 / 4; kept < longBytes || kept > most {
		t.Errorf("%d bytes are stored for %d of output", kept, longBytes)
	}
}

// size returns the total size of the files below dir.
func size(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		bytes += info.Size()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}
