package pairing

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/smalldisk"
	"colabrelay/shared/tier"
)

func TestAFullDiskLeavesTheListAsItWas(t *testing.T) {
	tier.Long(t)
	disk := smalldisk.Run(t, 1)
	if disk == "" {
		return
	}
	s := Open(disk)
	put(t, s, made(t, "a"))
	smalldisk.Fill(t, filepath.Join(disk, "filler"))
	if _, err := s.Put(made(t, "b")); err == nil || !strings.Contains(err.Error(), syscall.ENOSPC.Error()) {
		t.Errorf("a new runtime: %v, want %v", err, syscall.ENOSPC)
	}
	list, err := s.List()
	if err != nil || len(list) != 1 || list[0].Name != "a" {
		t.Errorf("the list is %v, %v", list, err)
	}
}
