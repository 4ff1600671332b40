package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"github.com/google/uuid"
)

// state is the folder that survives a restart of the executor, held by this one.
type state struct {
	dir        string
	instanceID string
	instance   instance
	lock       *flock.Flock
	locked     os.FileInfo // the file that lock holds
}

// instance is the content of instance.json. The id is made once per state dir: a
// relay knows by it whether a retried submit reached the same executions.
type instance struct {
	InstanceID string    `json:"instance_id"`
	CreatedAt  time.Time `json:"created_at"`
}

const (
	lockFile     = "lock" // keeps a second executor out of a state dir
	instanceFile = "instance.json"
)

// openState makes dir, for this user only, and takes it for this process. Two
// executors writing one log would destroy it.
func openState(dir string) (*state, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the state dir: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, fmt.Errorf("closing the state dir to others: %w", err)
	}
	lock, locked, err := lockState(dir)
	if err != nil {
		return nil, err
	}
	s := &state{dir: dir, lock: lock, locked: locked}
	if s.instance, err = readInstance(s.path(instanceFile)); err != nil {
		s.close()
		return nil, err
	}
	s.instanceID = s.instance.InstanceID
	return s, nil
}

func (s *state) path(name string) string { return filepath.Join(s.dir, name) }

func (s *state) close() { s.lock.Close() }

// readInstance reads the id, or makes it. A file that can't be read is an error and
// not a new id: that would make relays forget executions that are still there.
func readInstance(file string) (instance, error) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		made := instance{InstanceID: uuid.NewString(), CreatedAt: time.Now().UTC()}
		return made, writeJSON(file, made)
	}
	var found instance
	if err == nil {
		err = json.Unmarshal(raw, &found)
	}
	if err == nil && uuid.Validate(found.InstanceID) != nil {
		err = errors.New("holds no instance_id")
	}
	if err != nil {
		return found, fmt.Errorf("reading %q: %w", file, err)
	}
	return found, nil
}

// writeJSON writes v to file, 0600, all at once: a reader sees the whole or nothing.
func writeJSON(file string, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %q: %w", file, err)
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".tmp-*") // 0600
	if err != nil {
		return fmt.Errorf("writing %q: %w", file, err)
	}
	defer os.Remove(f.Name()) // gone already once it is renamed
	_, err = f.Write(append(raw, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("writing %q: %w", file, err)
	}
	return nil
}
