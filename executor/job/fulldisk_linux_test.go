package job

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
	"colabrelay/shared/smalldisk"
	"colabrelay/shared/tier"
)

func TestAJobGoesOnWhileTheDiskIsFull(t *testing.T) {
	tier.Long(t)
	disk := smalldisk.Run(t, 12)
	if disk == "" {
		return
	}
	dir, filler := filepath.Join(disk, "state"), filepath.Join(disk, "filler")
	b := newBench(t, settings{dir: dir})
	held := b.hold("j", "1", "2", fmt.Sprintf("import os; os.remove(%q)", filler), "4")
	smalldisk.Fill(t, filler)
	if _, err := b.Submit("caller", contract.JobSubmit{JobID: "more", Steps: steps("1")}); !errors.Is(err, journal.ErrDiskFull) {
		t.Errorf("another job: %v", err)
	}
	b.release(held)
	x := b.end("j")
	wantState(t, x, contract.JobFinished, "")
	if _, err := b.Read(t.Context(), "j", 0, 0); err != nil { // saves what could not be saved before
		t.Fatal(err)
	}
	b.stop()
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	again, err := opened(t, copied).Read(t.Context(), "j", 0, 0)
	if err != nil || again.State != contract.JobFinished || statuses(again) != statuses(x) {
		t.Errorf("the next executor finds %+v, %v", again, err)
	}
}
