package e2e

import (
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/e2e/hostilevm"
	"colabrelay/shared/tier"
)

// peak returns the largest resident memory of a process so far, in MB.
func peak(t *testing.T, pid int) int {
	t.Helper()
	m, err := harness.MemoryOf(pid)
	must(t, err)
	return int(m.Peak)
}

// Each bound allows for garbage that has not been collected. An idle relay takes about
// 15 MB.
func TestABombCostsTheRelayLittle(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	for _, c := range []struct {
		name string
		args map[string]any
		tool string
		most int // MB of memory
		// Files and bytes that may be in the folder for downloads.
		files int
		bytes int64
	}{
		{name: "none", most: 60},
		{name: "events", most: 150},
		{name: "gzip", most: 150},
		{name: "endless-blob", most: 150, bytes: 1 << 20},
		{name: "pictures-50mpx", most: 100, files: 8, bytes: 8 << 20},
		{name: "pictures-large", most: 250, files: 8, bytes: 8 << 20},
		{name: "pictures-16mpx", most: 250, files: 4, bytes: 8 << 20},
		{name: "pictures-tiny", most: 100, files: 100, bytes: 1 << 20},
		{name: "picture-forms", most: 100, files: 20, bytes: 1 << 20},
		{name: "pictures-long", most: 250},
		{name: "executions", tool: "list_executions", most: 150},
		{name: "variables", tool: "list_colab_variables", most: 150},
		{name: "files", tool: "list_colab_files", most: 150},
		{name: "disks", tool: "probe_colab_environment", most: 150},
	} {
		t.Run(c.name, func(t *testing.T) {
			vm := hostilevm.Start(t, c.name)
			dir := t.TempDir()
			h := startHost(t, vm.URL, harness.HostConfig{Dir: dir, Env: []string{"COLAB_SECRET=" + vm.Secret.Reveal(), "LOCAL_SAVE_DIR=" + dir + "/saved"}})
			began := time.Now()
			if c.tool == "" {
				c.tool, c.args = "run_code_quick", map[string]any{"code": "1"}
			}
			call(t, h, c.tool, c.args)
			if mb := peak(t, h.PID()); mb > c.most {
				t.Errorf("the relay took %d MB, over %d", mb, c.most)
			}
			files, size := inFolder(t, filepath.Join(dir, "saved"))
			if files > c.files || size > c.bytes {
				t.Errorf("%d files of %d bytes were saved, over %d of %d", files, size, c.files, c.bytes)
			}
			t.Logf("%d MB, %d files of %d bytes, %s", peak(t, h.PID()), files, size, time.Since(began))
		})
	}
}

// inFolder returns the number of files below dir and their total size.
func inFolder(t *testing.T, dir string) (files int, size int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			files, size = files+1, size+info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, size
}
