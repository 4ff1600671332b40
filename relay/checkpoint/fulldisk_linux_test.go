package checkpoint

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/smalldisk"
	"colabrelay/shared/tier"
)

func TestAFullDiskLeavesTheCheckpointAsItWas(t *testing.T) {
	tier.Long(t)
	disk := smalldisk.Run(t, 1)
	if disk == "" {
		return
	}
	if _, err := Save(disk, "train", "before"); err != nil {
		t.Fatal(err)
	}
	smalldisk.Fill(t, filepath.Join(disk, "filler"))
	if _, err := Save(disk, "train", strings.Repeat("x", 100<<10)); err == nil || !strings.Contains(err.Error(), syscall.ENOSPC.Error()) {
		t.Errorf("saving: %v, want %v", err, syscall.ENOSPC)
	}
	var got string
	if _, err := Load(disk, "train", &got); err != nil || got != "before" {
		t.Errorf("the checkpoint has %.20q, %v", got, err)
	}
	if left, err := filepath.Glob(filepath.Join(disk, "*")); err != nil || len(left) > 3 { // the checkpoint, its lock, the filler
		t.Errorf("left behind: %q, %v", left, err)
	}
}
