package execution

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
)

const envSmallDisk = "TEST_SMALL_DISK"

// onSmallDisk runs the test again in a process whose folder dir is a disk of a few
// MiB: mounting one takes a mount namespace, and without root a user namespace too.
// It returns the folder there, and "" in the process that only waits.
func onSmallDisk(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv(envSmallDisk); dir != "" {
		if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=12m"); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), envSmallDisk+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if id := os.Getuid(); id != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v:\n%s", err, out)
	}
	return ""
}

// fill takes all that is left of the disk.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, piece := range []int{64 << 10, 1} {
		for err = nil; err == nil; _, err = f.Write(make([]byte, piece)) {
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
}

func TestFullDiskLocksNobodyOut(t *testing.T) {
	disk := onSmallDisk(t)
	if disk == "" {
		return
	}
	dir, filler := filepath.Join(disk, "executions"), filepath.Join(disk, "filler")
	q := start(t, stacks.Old(t), Config{Dir: dir})
	q.run("kept = 1")
	fill(t, filler)
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
	if x, err := again.Read(t.Context(), first.ExecutionID, ReadRequest{}); err != nil || x.Status != contract.StatusSucceeded {
		t.Errorf("after a kill: %s, %v", x.Status, err)
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
	disk := onSmallDisk(t)
	if disk == "" {
		return
	}
	filler := filepath.Join(disk, "filler")
	q := start(t, stacks.Old(t), Config{Dir: filepath.Join(disk, "executions")})
	q.run("1")
	fill(t, filler)
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
	fill(t, filler)
	wantStatus(t, q.run("'again'"), contract.StatusSucceeded)
}
