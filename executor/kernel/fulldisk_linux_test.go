package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/smalldisk"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// A kernel that ends while the disk is full is replaced, so that code can still delete files.
func TestAKernelStartsOnAFullDisk(t *testing.T) {
	tier.Long(t)
	disk := smalldisk.Run(t, 4)
	if disk == "" {
		return
	}
	python := find(t, stacks.Old(t))
	environments := filepath.Dir(filepath.Dir(filepath.Dir(python.Path)))
	kept, err := os.Open(environments) // which may be below /tmp
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	t.Setenv("TMPDIR", "/tmp")
	for _, temp := range []string{"/var/tmp", "/tmp"} { // all that Python tries
		if err := syscall.Mount(disk, temp, "", syscall.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(python.Path); err != nil {
		if err := os.MkdirAll(environments, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount(fmt.Sprintf("/proc/self/fd/%d", kept.Fd()), environments, "", syscall.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	filler, state := "/tmp/filler", t.TempDir()
	smalldisk.Fill(t, filler)
	_, k := running(t, Config{Python: python, StateDir: state, Place: t.Name()})
	if filepath.Dir(k.dir) != contract.MemoryFolder {
		t.Errorf("the kernel's folder is %q", k.dir)
	}
	if _, err := os.Stat(recordPath(state)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty record: %v", err)
	}
	if got := evaluate(t, k, "import os", "os.remove('"+filler+"')"); got != "None" {
		t.Errorf("deleting a file: %s", got)
	}
}
