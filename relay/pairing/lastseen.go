package pairing

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"colabrelay/shared/aside"
	"colabrelay/shared/bounded"
)

const (
	lastSeenName = "lives.json"
	// maxLastSeen bounds the entries of the file; the oldest is dropped first. There are
	// fewer pairings, but each value that COLAB_SECRET ever had makes an entry too.
	maxLastSeen = 256
)

// LastSeen is what the relay last saw of a runtime: which VM, and which kernel on it.
type LastSeen struct {
	InstanceID string    `json:"instance_id,omitempty"`
	KernelID   string    `json:"kernel_id,omitempty"`
	Since      time.Time `json:"since"` // when it was first seen
}

// Updated returns what is seen of a runtime that now has the kernel kernelID, on the VM
// instanceID unless that is empty.
func (s LastSeen) Updated(instanceID, kernelID string) LastSeen {
	s.InstanceID = cmp.Or(instanceID, s.InstanceID)
	if kernelID != s.KernelID {
		s.KernelID, s.Since = kernelID, time.Now()
	}
	return s
}

// Key names a runtime in the file of what was last seen. COLAB_URL may differ from one
// host's settings to another's, so for EnvName the key includes the secret's key id.
func (r Runtime) Key() string {
	if r.Name == EnvName {
		return EnvName + " " + r.Secret.KeyID()
	}
	return r.Name
}

// LastSeen returns what was last seen of the runtime with that Key. It is zero when
// nothing was seen, and also when the file cannot be read, because it only serves hints.
func (s *Store) LastSeen(key string) LastSeen {
	if _, err := os.Stat(filepath.Join(s.dir, lastSeenName)); err != nil {
		return LastSeen{}
	}
	unlock, err := s.readLock()
	if err != nil {
		return LastSeen{}
	}
	defer unlock()
	entries, err := s.readLastSeenLocked()
	if err != nil {
		return LastSeen{}
	}
	return entries[key]
}

// SaveLastSeen records what was seen of the runtime with that Key, for later relays.
func (s *Store) SaveLastSeen(key string, seen LastSeen) error {
	unlock, err := s.lockForChange()
	if err != nil {
		return err
	}
	defer unlock()
	entries, err := s.readLastSeenLocked()
	if err != nil { // a damaged file loses only hints: start a new one
		entries = map[string]LastSeen{}
		_, _ = aside.Move(filepath.Join(s.dir, lastSeenName)) // if that fails, so does the write
	}
	entries[key] = seen
	for len(entries) > maxLastSeen {
		delete(entries, oldest(entries))
	}
	return s.writeLastSeenLocked(entries)
}

// forgetLocked drops the entry of that Key.
func (s *Store) forgetLocked(key string) error {
	entries, err := s.readLastSeenLocked()
	if err != nil || entries[key] == (LastSeen{}) {
		return nil
	}
	delete(entries, key)
	return s.writeLastSeenLocked(entries)
}

func (s *Store) readLastSeenLocked() (map[string]LastSeen, error) {
	entries := map[string]LastSeen{}
	text, err := bounded.ReadFile(filepath.Join(s.dir, lastSeenName), maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return entries, nil
	case errors.Is(err, bounded.ErrTooLong):
		return nil, fmt.Errorf("%w: %q: %v", ErrDamaged, lastSeenName, err)
	case err != nil:
		return nil, err
	}
	if err := json.Unmarshal(text, &entries); err != nil || entries == nil {
		return nil, fmt.Errorf("%w: %q", ErrDamaged, lastSeenName)
	}
	return entries, nil
}

func (s *Store) writeLastSeenLocked(entries map[string]LastSeen) error {
	text, err := json.MarshalIndent(entries, "", "  ")
	if err == nil {
		err = replace(filepath.Join(s.dir, lastSeenName), bytes.NewReader(append(text, '\n')))
	}
	if err != nil {
		return fmt.Errorf("record what was last seen of the runtimes: %v", err)
	}
	return nil
}

func oldest(entries map[string]LastSeen) (key string) {
	for k, seen := range entries {
		if key == "" || seen.Since.Before(entries[key].Since) {
			key = k
		}
	}
	return key
}
