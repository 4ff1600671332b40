package kernel

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"colabrelay/executor/account"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
)

// maxRecord bounds kernel.json, in bytes.
const maxRecord = 4 << 10

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
	return keep.WriteJSON(path, record{PID: pid, StartTime: start, BootID: bootID()})
}

// readRecord reads the record of a killed executor's kernel. A damaged file is renamed: what
// the kernel had started cannot be found then.
func readRecord(path string) (old record, err error) {
	data, err := bounded.ReadFile(path, maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return old, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &old)
	}
	if err == nil && old.PID > 1 && old.BootID != "" {
		return old, os.Remove(path)
	}
	kept, moved := keep.Aside(path)
	return record{}, errors.Join(fmt.Errorf("the record %q of the last kernel is damaged, and is kept as %q; programs that the kernel started may still run (%w)", path, kept, cmp.Or(err, errNoKernel)), moved)
}

var errNoKernel = errors.New("it names no kernel")

// ForgetLeftover removes the record of a kernel from a copied state folder: that kernel may
// be in use by the executor of the original.
func ForgetLeftover(stateDir string) error {
	if err := os.Remove(recordPath(stateDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// endLeftover kills the process group of a killed executor's kernel. Pdeathsig ends the
// kernel itself, but not what the kernel started.
func endLeftover(stateDir string) error {
	old, err := readRecord(recordPath(stateDir))
	if err != nil || old.PID == 0 || old.BootID != bootID() {
		return err
	}
	start, _, err := processStat(old.PID)
	switch {
	case err == nil && start != old.StartTime:
		return nil // the pid, and so the group's id, was reused
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH):
		return fmt.Errorf("looking at process %d, which was a killed executor's kernel: %w; what it started may still run", old.PID, err)
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

// runtimePrefix begins the name of a kernel's own folder in the temp folder.
const runtimePrefix = "colab-relay-"

// maxRemains is how many folders in one temp folder are removed at a time: code of the
// kernel's user knows their names and may have made any number.
const maxRemains = 1000

// ownerOf marks this executor's folders in the temp folder. It is derived from the place of
// its state folder, which no other executor uses, and empty without one.
func ownerOf(place string) string {
	if place == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(place))
	return hex.EncodeToString(sum[:6])
}

// removeRemains removes what killed kernels of this executor left in the temp folder: the
// folders of their sockets, and the files of unfinished saves. It keeps the files of
// finished saves, because the relay may still download them. No kernel of this executor
// may be running.
func removeRemains(as *account.User, owner string) error {
	if owner == "" {
		return nil
	}
	var faults []error
	for _, temp := range []string{os.TempDir(), contract.MemoryFolder} {
		as.Do(func() { faults = append(faults, removeRemainsIn(temp, owner, as)) })
	}
	return errors.Join(faults...)
}

// removeRemainsIn reads the folder in pieces, because other users may have filled it.
func removeRemainsIn(temp, owner string, as *account.User) error {
	folder, err := os.Open(temp)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer folder.Close()
	var faults []error
	for {
		names, err := folder.Readdirnames(1024)
		for _, name := range names {
			if path := filepath.Join(temp, name); isRemains(path, name, owner, as.UID()) && len(faults) < maxRemains {
				faults = append(faults, as.RemoveAll(path))
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				faults = append(faults, err)
			}
			return errors.Join(faults...)
		}
	}
}

func isRemains(path, name, owner string, uid int) bool {
	switch {
	case strings.HasPrefix(name, runtimePrefix+owner+"-"):
		return isFolderOf(uid, path)
	case strings.HasPrefix(name, contract.StateFolderPrefix+owner+"-"):
		_, err := os.Lstat(filepath.Join(path, contract.StateUnfinished))
		return err == nil && isFolderOf(uid, path)
	}
	return false
}

// isFolderOf reports whether path is a folder of a user and not a link. In a shared temp
// folder, other users may have made one of that name.
func isFolderOf(uid int, path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == uid
}
