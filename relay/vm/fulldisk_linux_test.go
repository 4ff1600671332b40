package vm

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/natefinch/atomic"

	"colabrelay/shared/smalldisk"
	"colabrelay/shared/tier"
)

// The record of a VM that costs money is not lost while another cannot be added.
func TestAFullDiskLeavesTheListOfVMsAsItWas(t *testing.T) {
	tier.Long(t)
	disk := smalldisk.Run(t, 1)
	if disk == "" {
		return
	}
	s := store{dir: disk, writeFile: atomic.WriteFile}
	add := func(name string) error {
		_, err := s.change(func(all []Record) ([]Record, error) {
			return append(all, Record{ID: NewID(), Name: name, Backend: "api", Accelerators: []string{"T4"}, Step: Paired}), nil
		})
		return err
	}
	if err := add("a"); err != nil {
		t.Fatal(err)
	}
	smalldisk.Fill(t, filepath.Join(disk, "filler"))
	if err := add("b"); err == nil || !strings.Contains(err.Error(), syscall.ENOSPC.Error()) {
		t.Errorf("a new VM: %v, want %v", err, syscall.ENOSPC)
	}
	if all, err := s.read(); err != nil || find(all, "a") == nil || find(all, "b") != nil {
		t.Errorf("the list is %+v, %v", all, err)
	}
}
