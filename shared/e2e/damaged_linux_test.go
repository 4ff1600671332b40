package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/tier"
)

// Both programs start on folders in which every file is damaged, work, and delete none of it.
func TestBothProgramsStartOnDamagedFolders(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	for name, damage := range map[string]func(path string) ([]byte, error){"noise": fillWithNoise, "pipes": replaceByPipe} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := startExecutor(t, harness.ExecutorConfig{})
			laptop := t.TempDir()
			env := []string{"LOCAL_SAVE_DIR=" + laptop + "/saved", "CHECKPOINT_DIR=" + laptop + "/checkpoints"}
			h := startHost(t, e.Ready.LocalURL, harness.HostConfig{Dir: laptop, Env: env})
			chunks := map[string]any{"setup_code": "did = []", "loop_code": "did.append(i)", "n_iterations": 4, "batch_size": 2, "checkpoint_name": "loop"}
			want(t, quick(t, h, "for n in range(5): print('line', n)"), map[string]any{"success": true})
			want(t, call(t, h, "run_chunked_operation", chunks), map[string]any{"success": true})
			h.Kill()
			e.Kill()
			content := damageAll(t, damage, e.Config.Dir, laptop)

			e = startExecutor(t, e.Config)
			h = startHost(t, e.Ready.LocalURL, harness.HostConfig{Dir: laptop, Env: env})
			want(t, quick(t, h, "print(6 * 7)"), map[string]any{"success": true, "stdout": "42\n"})
			if a := call(t, h, "run_chunked_operation", chunks); a.Error() != "checkpoint_damaged" {
				t.Errorf("a damaged checkpoint is used: %s", a.Text)
			}
			chunks["on_change"] = "restart"
			if a := call(t, h, "run_chunked_operation", chunks); a.IsError || !strings.Contains(a.Text, ".damaged-") {
				t.Errorf("a new run in place of a damaged one: %s", a.Text)
			}
			for path, text := range content {
				if !isBelow(t, text, e.Config.Dir, laptop) {
					t.Errorf("what was in %q is gone", path)
				}
			}
		})
	}
}

// damageAll damages the files of the programs below the folders, except locks and the log in
// which they say what is damaged. It returns what the damaged ones contain.
func damageAll(t *testing.T, damage func(string) ([]byte, error), folders ...string) map[string][]byte {
	t.Helper()
	content, count := map[string][]byte{}, 0
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() || strings.HasSuffix(path, "lock") || strings.HasSuffix(path, ".log") {
				return err
			}
			text, err := damage(path)
			count++
			if len(text) > 0 {
				content[path] = text
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d files are damaged", count)
	return content
}

func fillWithNoise(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	text := make([]byte, max(info.Size(), 100))
	for i := range text {
		text[i] = byte(rand.Uint32())
	}
	return text, os.WriteFile(path, text, 0o600)
}

func replaceByPipe(path string) ([]byte, error) {
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return nil, syscall.Mkfifo(path, 0o600)
}

// isBelow reports whether a file that begins with text is below one of the folders.
func isBelow(t *testing.T, text []byte, folders ...string) bool {
	t.Helper()
	found := false
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
			if err != nil || found || !e.Type().IsRegular() {
				return err
			}
			has, err := os.ReadFile(path)
			found = err == nil && bytes.HasPrefix(has, text)
			return err
		})
		if err != nil {
			t.Error(fmt.Errorf("looking for what was damaged: %w", err))
		}
	}
	return found
}
