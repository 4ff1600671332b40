// Package statedir is the folder that survives a restart of the executor. A lock
// keeps other executors out of it. The package must not know what the executor
// keeps there, besides the instance id. Start reading at Open.
package statedir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"colabrelay/shared/bounded"
	"colabrelay/shared/keep"
)

const (
	lockFile     = "lock"
	instanceFile = "instance.json"
	// lockTime is how long to wait for the lock: a process that a killed executor was just
	// starting holds it until its exec.
	lockTime = time.Second
	// maxInstance bounds instance.json, in bytes.
	maxInstance = 4 << 10
)

// Dir is a state directory that this process has locked.
type Dir struct {
	path     string
	place    string // see Place
	instance instance
	damage   error
	copied   bool
	unlock   func()
	locked   os.FileInfo // the file of the lock
}

// instance is the content of instance.json. The id is made once per state
// directory: from it a relay knows whether a repeated submit reached the same
// executions. Born is when the directory was created, so that a copy of it is known as one;
// it is zero where the file system does not say.
type instance struct {
	InstanceID string    `json:"instance_id"`
	CreatedAt  time.Time `json:"created_at"`
	Born       time.Time `json:"folder_created_at,omitzero"`
}

// Open creates the directory, for this user only, and locks it: two executors that
// write one log would destroy it.
func Open(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("create the state folder: %w", err)
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return nil, fmt.Errorf("make the state folder private: %w", err)
	}
	d := &Dir{path: path}
	var err error
	if d.place, err = placeOf(path); err != nil {
		return nil, err
	}
	if d.unlock, d.locked, err = lock(path); err != nil {
		return nil, err
	}
	if err := d.identify(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// identify reads the id. It makes a new one if there is none, if it is damaged, or if the
// directory is a copy of another one, such as a backup or another VM's: executors with one id would
// both run a request that a relay repeats.
func (d *Dir) identify() error {
	file := keep.File[instance]{
		Path: d.Path(instanceFile), What: "the executor's instance_id", Max: maxInstance,
		Check: func(i *instance) error { return uuid.Validate(i.InstanceID) },
	}
	known, err := file.Read()
	if err != nil && !errors.Is(err, keep.ErrDamaged) {
		return err
	}
	born := birth(d.path)
	d.copied = !born.IsZero() && !known.Born.IsZero() && !born.Equal(known.Born)
	if known.InstanceID != "" && !d.copied {
		d.instance = known
		return nil
	}
	d.instance = instance{InstanceID: uuid.NewString(), CreatedAt: time.Now().UTC(), Born: born}
	d.damage, err = file.Change(func(i *instance) error { *i = d.instance; return nil })
	if d.damage != nil {
		d.damage = fmt.Errorf("%w: relays treat this executor as a new VM", d.damage)
	}
	return err
}

// Copied says that the directory was copied from another one, and has a new InstanceID
// since Open.
func (d *Dir) Copied() bool { return d.copied }

// Damage says that instance.json was damaged, where it is kept, and what a new instance_id
// means. It is nil if the file was intact.
func (d *Dir) Damage() error { return d.damage }

// InstanceID identifies the directory.
func (d *Dir) InstanceID() string { return d.instance.InstanceID }

// Place identifies where the directory is: by it, an executor finds what an earlier one left
// elsewhere on this machine, even if the directory was deleted, and the instance id with it.
func (d *Dir) Place() string { return d.place }

// placeOf includes the name of the machine, because containers may share their temp folders.
func placeOf(path string) (string, error) {
	machine, err := os.Hostname()
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "", fmt.Errorf("find out where the state folder %q is: %w", path, err)
	}
	return machine + ":" + path, nil
}

// Path returns the path of a file in the directory.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// Close unlocks the directory.
func (d *Dir) Close() { d.unlock() }

// Deleted says whether instance.json is missing, or the lock file is not the one that this
// process holds.
func (d *Dir) Deleted() bool {
	_, err := os.Stat(d.Path(instanceFile))
	return err != nil || d.unlocked()
}

func (d *Dir) unlocked() bool {
	now, err := os.Stat(d.Path(lockFile))
	return err != nil || !os.SameFile(now, d.locked)
}

// Restore creates a deleted directory again and locks it, which fails if another executor has
// locked it by now. Then it has refill write what else must be there, and instance.json last:
// whoever finds the id must find the rest.
func (d *Dir) Restore(refill func() error) error {
	if err := d.lockAgain(); err != nil {
		return err
	}
	if err := refill(); err != nil {
		return err
	}
	file := d.Path(instanceFile)
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	d.instance.Born = birth(d.path)
	return keep.WriteJSON(file, d.instance)
}

func (d *Dir) lockAgain() error {
	if !d.unlocked() {
		return nil
	}
	unlock, locked, err := lock(d.path)
	if err != nil {
		return err
	}
	d.unlock()
	d.unlock, d.locked = unlock, locked
	return nil
}

// InUse says whether an executor has locked the directory.
func InUse(path string) bool { return keep.IsLocked(filepath.Join(path, lockFile)) }

func lock(path string) (unlock func(), locked os.FileInfo, err error) {
	file := filepath.Join(path, lockFile)
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() { // opening a pipe would wait
		return nil, nil, fmt.Errorf("lock the state folder %q: %q is %w: remove it", path, file, bounded.ErrNotFile)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockTime)
	defer cancel()
	unlock, err = keep.Lock(ctx, file)
	switch {
	case errors.Is(err, keep.ErrLocked):
		return nil, nil, fmt.Errorf("another executor uses the state folder %q: stop it, or start this one with another --state-dir and --listen", path)
	case err != nil:
		return nil, nil, fmt.Errorf("the state folder: %w", err)
	}
	if locked, err = os.Stat(file); err != nil {
		unlock()
		return nil, nil, fmt.Errorf("lock the state folder: %w", err)
	}
	return unlock, locked, nil
}
