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

	"colabrelay/shared/contract"
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
// have left a file in which it kept long output, and faults may have left states.
func (w *world) nothingLeft(relayKills, mostStates int) error {
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
	states, err := filepath.Glob(filepath.Join(roots[0], "tmp", contract.StateFolderPrefix+"*"))
	if err != nil || len(states) > mostStates {
		return errors.Join(err, fmt.Errorf("%d states are left on the VM, and faults excuse %d: %q", len(states), mostStates, states))
	}
	for _, root := range roots {
		if err := noRemains(root); err != nil {
			return err
		}
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
		temporary := strings.HasPrefix(name, "colab-relay-") && !strings.HasPrefix(name, contract.StateFolderPrefix) && (strings.Contains(path, "/tmp/") || strings.Contains(path, "/temp/"))
		part := strings.HasSuffix(name, ".part") && !strings.HasPrefix(name, ".std") || strings.HasSuffix(name, ".part.json") || strings.HasSuffix(name, ".colab-part")
		if temporary || part {
			return fmt.Errorf("%q is left", path)
		}
		return nil
	})
}
