package kernel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// record identifies a kernel process. The pid alone is not enough: it may belong to
// another process when the next executor reads the record.
type record struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"start_time"` // clock ticks since boot, /proc/<pid>/stat field 22
	BootID    string `json:"boot_id"`
}

func recordPath(stateDir string) string { return filepath.Join(stateDir, "kernel.json") }

func writeRecord(path string, pid int) error {
	start, _, err := processStat(pid)
	if err != nil {
		return err
	}
	data, err := json.Marshal(record{PID: pid, StartTime: start, BootID: bootID()})
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// endLeftover kills the process group of a killed executor's kernel. Pdeathsig ends the
// kernel itself, but not what the kernel started.
func endLeftover(stateDir string) error {
	data, err := os.ReadFile(recordPath(stateDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer os.Remove(recordPath(stateDir))
	var old record
	if err := json.Unmarshal(data, &old); err != nil {
		return fmt.Errorf("reading %q: %w", recordPath(stateDir), err)
	}
	if old.PID <= 1 || old.BootID != bootID() {
		return nil
	}
	start, _, err := processStat(old.PID)
	if err == nil && start != old.StartTime {
		return nil // the pid, and so the group's id, was reused
	}
	// The leader's children still form the group, and no new process can get its id
	// while one of them is running.
	if err := syscall.Kill(-old.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// processStat reads a process's start time and state letter from /proc.
func processStat(pid int) (start uint64, state byte, err error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, err
	}
	// The command's name may contain spaces and parentheses: count from the last one.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("the stat of process %d is too short", pid)
	}
	start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	return start, fields[0][0], err
}

// bootID identifies the boot, which start times count from.
func bootID() string {
	data, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(data))
}
