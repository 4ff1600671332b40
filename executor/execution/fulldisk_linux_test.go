package execution

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/smalldisk"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

func TestCodeStillRunsOnAFullDisk(t *testing.T) {
	tier.Long(t)
	disk := smalldisk.Run(t, 12)
	if disk == "" {
		return
	}
	dir, filler := filepath.Join(disk, "executions"), filepath.Join(disk, "filler")
	q := newBench(t, stacks.Old(t), settings{ownKernel: true, dir: dir})
	q.run("kept = 1")
	smalldisk.Fill(t, filler)
	first := q.run("print('on a full disk', kept)")
	for n := range 20 {
		if x := q.run(fmt.Sprintf("print(%d)", n)); x.Status != contract.StatusSucceeded || text(x, contract.Stdout) != fmt.Sprint(n, "\n") {
			t.Fatalf("run %d: %s, %q", n, x.Status, text(x, contract.Stdout))
		}
	}
	if text(first, contract.Stdout) != "on a full disk 1\n" || !strings.Contains(first.Reason, "disk is full") {
		t.Errorf("first = %+v", first)
	}
	if x := q.run("for n in range(100): print('x' * 100_000)"); x.Status != contract.StatusSucceeded || !strings.Contains(x.Reason, "could not be written") {
		t.Errorf("much output: %s, %q", x.Status, x.Reason)
	}

	// After a kill, what was accepted is known and does not run again.
	killed := filepath.Join(t.TempDir(), "killed")
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	again := reopened(t, killed)
	if id, err := again.Submitted(contract.Submit{RequestID: first.RequestID, Code: "print('on a full disk', kept)"}); err != nil || id != first.ExecutionID {
		t.Errorf("after a kill: %q, %v", id, err)
	}
	for range 2 { // kills
		wantStatus(t, read(t, again, first.ExecutionID), contract.StatusSucceeded)
		again = reopened(t, killed)
	}

	// Code deletes what fills the disk; then everything is saved.
	wantStatus(t, q.run(fmt.Sprintf("import os; os.remove(%q)", filler)), contract.StatusSucceeded)
	q.awaitFlushed()
	q.stop()
	if x := read(t, reopened(t, dir), first.ExecutionID); text(x, contract.Stdout) != "on a full disk 1\n" {
		t.Errorf("after the disk has room again: %+v", x)
	}
}
