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

// While lines can't be saved, what the executions say of their job is enough for the next
// executor; with more of them than fit into memory, the job waits.
func TestLinesOfAJobInMemoryAreBounded(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	b := newBench(t, settings{})
	held := b.hold("j", "2", "3")
	j := b.byID["j"]
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	j.file.close()
	j.file.file = full
	j.file.unsaved = make([]byte, maxUnsaved-len(marshal(line{Index: new(int), Status: "succeeded"})))
	atBound := j.file.ready()
	b.mu.Unlock()
	if atBound != nil {
		t.Errorf("at the bound: %v", atBound)
	}
	b.mu.Lock()
	j.file.unsaved = append(j.file.unsaved, 0)
	b.mu.Unlock()
	b.release(held) // whose end is a line more
	b.await("j", func(x contract.Job) bool { return x.Cause == contract.CauseDiskFull })
	b.mu.Lock()
	j.file.unsaved = nil
	j.file.close()
	b.mu.Unlock()
	x := b.end("j")
	wantState(t, x, contract.JobFinished, "")
	b.stop()
	again, err := opened(t, b.dir).Read(t.Context(), "j", 0, 0)
	if err != nil || again.State != contract.JobFinished || statuses(again) != statuses(x) {
		t.Errorf("the next executor finds %+v, %v", again, err)
	}
}
