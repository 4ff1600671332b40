// Package enrolldir is the folder in which an executor that enrolls and a notebook's cells
// meet. The cell creates it for this user only, and everything in it is public or sealed:
//
//	cell    locked while a cell starts the executor
//	lock    locked while the executor runs
//	pid     its process id
//	key     its public key
//	tunnel  by the cell: the tunnel that the machine is prepared for
//	grant   by the cell: the sealed grant, as text
//	answer  where the executor is reachable
//	used    a relay has used the executor
//	error   why there is no executor, a sentence; the cell that reads it removes the folder
//
// Files of the executor are JSON and appear whole, by a rename. The package must not know
// what the files mean. Start reading at Open.
package enrolldir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"colabrelay/shared/bounded"
	"colabrelay/shared/keep"
)

// poll is how often AwaitGrant looks for the grant.
const poll = 50 * time.Millisecond

// Names of the files.
const (
	lockFile   = "lock"
	pidFile    = "pid"
	keyFile    = "key"
	grantFile  = "grant"
	answerFile = "answer"
	usedFile   = "used"
	errorFile  = "error"
)

// all are the files that may be in the folder, but for the error.
var all = []string{"cell", pidFile, keyFile, "tunnel", grantFile, grantFile + ".new", answerFile, usedFile, lockFile}

// Dir is a folder that this process has locked.
type Dir struct {
	path   string
	unlock func()
}

// Open locks the folder and records this process in it. It refuses a folder that other
// users may enter or that another process has locked.
func Open(path string) (*Dir, error) {
	if err := checkPrivate(path); err != nil {
		return nil, err
	}
	unlock, err := keep.TryLock(filepath.Join(path, lockFile))
	if err != nil {
		return nil, fmt.Errorf("use the enrollment folder: %w", err)
	}
	d := &Dir{path, unlock}
	if err := d.write(pidFile, os.Getpid()); err != nil {
		unlock()
		return nil, fmt.Errorf("use the enrollment folder: %w", err)
	}
	return d, nil
}

// checkPrivate checks that only this user can enter the folder.
func checkPrivate(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("use the enrollment folder: %w", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || !ok || int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("the enrollment folder %q must be a folder of this user with mode 0700", path)
	}
	return nil
}

// WriteKey shows the executor's public key.
func (d *Dir) WriteKey(key string) error { return d.write(keyFile, key) }

// WriteAnswer shows or replaces the answer.
func (d *Dir) WriteAnswer(answer any) error { return d.write(answerFile, answer) }

func (d *Dir) write(name string, v any) error {
	return keep.WriteJSON(filepath.Join(d.path, name), v)
}

// AwaitGrant waits for the grant and returns its text, of at most limit bytes. It fails
// when ctx ends, with its cause.
func (d *Dir) AwaitGrant(ctx context.Context, limit int64) (string, error) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		text, err := bounded.ReadFile(filepath.Join(d.path, grantFile), limit)
		if !errors.Is(err, fs.ErrNotExist) {
			return string(text), err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// Close unlocks the folder and removes it. If there is a reason why no executor was
// started, it leaves that for the cell.
func (d *Dir) Close(reason string) {
	if reason != "" {
		_ = d.write(errorFile, reason) // without it the cell says that there is no reason
	}
	for _, name := range all {
		os.Remove(filepath.Join(d.path, name))
	}
	os.Remove(d.path) // fails if it holds the reason, or files of others
	d.unlock()
}

// Pattern matches the names of the folders that cells make.
const Pattern = "colab-relay-enroll-*"

// maxEnded bounds the folders of this user that one EndUnused looks at. Those of others, who
// may make many, do not count.
const maxEnded = 100

// WriteUsed records that the relay uses the executor, so that EndUnused spares it.
func (d *Dir) WriteUsed() error { return d.write(usedFile, true) }

// EndUnused ends the executors of other folders beside d that no relay has used yet, and
// returns when they have ended or ctx ends. A relay that was killed before it paired leaves
// such a one, which would occupy the state folder until its time is over.
func (d *Dir) EndUnused(ctx context.Context) {
	folders, _ := filepath.Glob(filepath.Join(filepath.Dir(d.path), Pattern)) // the pattern is right
	folders = slices.DeleteFunc(folders, func(folder string) bool { return folder == d.path || checkPrivate(folder) != nil })
	for _, folder := range folders[:min(len(folders), maxEnded)] {
		if unused(folder) {
			end(ctx, folder)
		}
	}
}

func unused(folder string) bool {
	_, err := os.Lstat(filepath.Join(folder, usedFile))
	return errors.Is(err, fs.ErrNotExist)
}

// end signals the process that holds the folder's lock, until it has ended or ctx ends.
func end(ctx context.Context, folder string) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for signalled := false; held(folder); {
		if pid := holder(folder); pid > 1 && !signalled {
			signalled = syscall.Kill(pid, syscall.SIGTERM) == nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// held reports whether a process has locked the folder.
func held(folder string) bool { return keep.IsLocked(filepath.Join(folder, lockFile)) }

// holder returns the process that has locked the folder, or 0.
func holder(folder string) (pid int) {
	text, err := bounded.ReadFile(filepath.Join(folder, pidFile), 32)
	if err != nil || json.Unmarshal(text, &pid) != nil {
		return 0
	}
	return pid
}
