package execution

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/smalldisk"
	"colabrelay/shared/stacks"
)

func TestFullDiskLocksNobodyOut(t *testing.T) {
	disk := smalldisk.Run(t, 12)
	if disk == "" {
		return
	}
	dir, filler := filepath.Join(disk, "executions"), filepath.Join(disk, "filler")
	q := start(t, stacks.Old(t), Config{Dir: dir})
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

	// A kill now: what was accepted is known, and runs nothing again.
	killed := filepath.Join(t.TempDir(), "killed")
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	again := reopened(t, q, killed)
	if id, err := again.Submit(contract.Submit{RequestID: first.RequestID, Code: "print('on a full disk', kept)"}); err != nil || id != first.ExecutionID {
		t.Errorf("after a kill: %q, %v", id, err)
	}
	for _, when := range []string{"after a kill", "after another"} {
		if x, err := again.Read(t.Context(), first.ExecutionID, ReadRequest{}); err != nil || x.Status != contract.StatusSucceeded {
			t.Errorf("%s: %s, %v", when, x.Status, err)
		}
		again = reopened(t, q, killed)
	}

	// Code deletes what fills the disk; then all is written down.
	wantStatus(t, q.run(fmt.Sprintf("import os; os.remove(%q)", filler)), contract.StatusSucceeded)
	q.awaitWritten()
	q.stop()
	again = reopened(t, q, dir)
	x, err := again.Read(t.Context(), first.ExecutionID, ReadRequest{})
	if err != nil || text(x, contract.Stdout) != "on a full disk 1\n" || again.reserve.used != 0 {
		t.Errorf("after the space came back: %+v, %v; %d bytes in reserve", x, err, again.reserve.used)
	}
}

func TestReserveIsBoundedAndUsedAgain(t *testing.T) {
	disk := smalldisk.Run(t, 12)
	if disk == "" {
		return
	}
	filler := filepath.Join(disk, "filler")
	q := start(t, stacks.Old(t), Config{Dir: filepath.Join(disk, "executions")})
	q.run("1")
	smalldisk.Fill(t, filler)
	var err error
	accepted := 0
	for ; err == nil && accepted < 5000; accepted++ {
		var id string
		if id, err = q.Submit(contract.Submit{RequestID: fmt.Sprint("n", accepted), Code: "pass"}); err == nil {
			q.settle(id)
		}
	}
	if !errors.Is(err, ErrDiskFull) || accepted < 400 {
		t.Errorf("after %d runs on a full disk: %v", accepted, err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	q.awaitWritten()
	smalldisk.Fill(t, filler)
	wantStatus(t, q.run("'again'"), contract.StatusSucceeded)
}
