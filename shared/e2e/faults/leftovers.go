package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"colabrelay/shared/e2e/harness"
)

// leftoverTime is the most that ended programs may take to clean up on a busy machine.
const leftoverTime = 2 * time.Minute

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
// the laptops have no temporary files and no parts of transfers. Each relay that was killed may
// have left a file in which it kept long output.
func (w *world) nothingLeft(relayKills int) error {
	if err := noProcess(w.dir); err != nil {
		return err
	}
	roots := []string{filepath.Dir(w.vm.Dir)}
	for _, l := range w.laptops {
		roots = append(roots, l.dir)
	}
	spools, err := filepath.Glob(filepath.Join(w.dir, "laptop*", "saved", "executions", "*", ".std*.part"))
	if err != nil || len(spools) > relayKills {
		return errors.Join(err, fmt.Errorf("%d relays were killed, and %d files with output are left: %q", relayKills, len(spools), spools))
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

// threadsMore is how many threads a relay may have more than at its start: Go keeps the threads that
// once waited for a file at the same time.
const threadsMore = 16

// noRelayDescriptors checks that the relays, which no call uses and which reach no executor any more,
// have no more connections and files than at their start.
func (w *world) noRelayDescriptors() error {
	for _, l := range w.laptops {
		now, err := harness.ProcessOf(l.current().PID())
		if err == nil {
			err = grown(l.began, now)
		}
		if err != nil {
			return fmt.Errorf("relay %d without a call: %w", l.number, err)
		}
	}
	return nil
}

// grown returns an error if a relay has more now than it had when it began.
func grown(began, now harness.Process) error {
	if now.Sockets > began.Sockets || now.Descriptors > began.Descriptors || now.Threads > began.Threads+threadsMore || len(now.Children) > len(began.Children) {
		return fmt.Errorf("it has %d descriptors, %d of them sockets, %d threads and %d children; it had %d, %d, %d and %d at its start; its open files are %q",
			now.Descriptors, now.Sockets, now.Threads, len(now.Children), began.Descriptors, began.Sockets, began.Threads, len(began.Children), now.Files)
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
		part := strings.HasSuffix(name, ".part") && !strings.HasPrefix(name, ".std") || strings.HasSuffix(name, ".part.json") || strings.HasSuffix(name, ".colab-part")
		if temporary || part {
			return fmt.Errorf("%q is left", path)
		}
		return nil
	})
}
