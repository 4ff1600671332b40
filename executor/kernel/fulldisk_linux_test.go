package kernel

import (
	"path/filepath"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/smalldisk"
	"colabrelay/shared/stacks"
)

// A kernel that ends while the disk is full is replaced, so that code can still delete files.
func TestAKernelStartsOnAFullDisk(t *testing.T) {
	disk := smalldisk.Run(t, 4)
	if disk == "" {
		return
	}
	python := find(t, stacks.Old(t))
	t.Setenv("TMPDIR", disk)
	smalldisk.Fill(t, filepath.Join(disk, "filler"))
	_, k := running(t, Config{Python: python, StateDir: disk, Instance: t.Name()})
	if filepath.Dir(k.dir) != contract.MemoryFolder {
		t.Errorf("the kernel's folder is %q", k.dir)
	}
	if got := evaluate(t, k, "", "__import__('os').remove("+"'"+filepath.Join(disk, "filler")+"')"); got != "None" {
		t.Errorf("deleting a file: %s", got)
	}
}
