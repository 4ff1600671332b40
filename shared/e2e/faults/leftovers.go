package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"colabrelay/shared/e2e/harness"
)

// leftoverTime is the most that ended programs may take to clean up on a busy machine.
const leftoverTime = 30 * time.Second

// eventually returns the last error of check if none of its calls within leftoverTime succeeds.
func eventually(ctx context.Context, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, leftoverTime)
	defer cancel()
	var last error
	if harness.Poll(ctx, func() (bool, error) { last = check(); return last == nil, nil }) == nil {
		return nil
	}
	return last
}

// nothingLeft checks that no process works in the folders of the suite, and that the last VM and
// the laptops have no temporary files and no parts of transfers.
func (w *world) nothingLeft() error {
	if err := noProcess(w.dir); err != nil {
		return err
	}
	roots := []string{filepath.Dir(w.vm.Dir)}
	for _, l := range w.laptops {
		roots = append(roots, l.dir)
	}
	for _, root := range roots {
		if err := noRemains(root); err != nil {
			return err
		}
	}
	return nil
}

// recentLogs is how many event logs of runs that have ended the executor keeps open, for late
// output; the executor's execution queue sets it.
const recentLogs = 16

// noDescriptors checks that the executor, which no relay uses any more, has no more connections
// than at its first start, and no more files than the logs of its newest runs.
func (w *world) noDescriptors() error {
	now, err := harness.ProcessOf(w.executor.PID())
	if err != nil {
		return err
	}
	if now.Sockets > w.began.Sockets || now.Descriptors > w.began.Descriptors+recentLogs {
		return fmt.Errorf("the executor has %d descriptors, %d of them sockets, without a relay; it had %d and %d at its start",
			now.Descriptors, now.Sockets, w.began.Descriptors, w.began.Sockets)
	}
	return nil
}

// noProcess checks that no process was started with, or works in, the folder.
func noProcess(dir string) error {
	pids, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	for _, proc := range pids {
		command, _ := os.ReadFile(filepath.Join(proc, "cmdline")) // it may end meanwhile
		folder, _ := os.Readlink(filepath.Join(proc, "cwd"))
		if bytes.Contains(command, []byte(dir+"/")) || strings.HasPrefix(folder, dir+"/") {
			return fmt.Errorf("process %s is left: %q in %q", filepath.Base(proc), bytes.ReplaceAll(command, []byte{0}, []byte{' '}), folder)
		}
	}
	return nil
}

// noRemains checks that a folder has no temporary files of the programs and no parts of files.
func noRemains(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		temporary := strings.HasPrefix(name, "colab-relay-") && (strings.Contains(path, "/tmp/") || strings.Contains(path, "/temp/"))
		part := strings.HasSuffix(name, ".part") || strings.HasSuffix(name, ".part.json") || strings.HasSuffix(name, ".colab-part")
		if temporary || part {
			return fmt.Errorf("%q is left", path)
		}
		return nil
	})
}
