package pairing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	livesName = "lives.json"
	// maxLives bounds the runtimes remembered; the one with the oldest life goes first.
	// Pairings are fewer, but each secret that COLAB_SECRET ever held is one, too.
	maxLives = 256
)

// Life is what was last seen of a runtime: which VM, and which kernel on it.
type Life struct {
	InstanceID string    `json:"instance_id,omitempty"`
	KernelID   string    `json:"kernel_id,omitempty"`
	Since      time.Time `json:"since"` // when it was first seen
}

// Key is the name a runtime's life is kept under. What COLAB_URL means differs from
// one host's settings to the next's, so there the secret's key id tells them apart.
func (r Runtime) Key() string {
	if r.Name == EnvName {
		return EnvName + " " + r.Secret.KeyID()
	}
	return r.Name
}

// Life is what was last seen of the runtime of that Key, zero when nothing was.
func (s *Store) Life(key string) Life {
	if _, err := os.Stat(filepath.Join(s.dir, livesName)); err != nil {
		return Life{}
	}
	unlock, err := s.readLock()
	if err != nil {
		return Life{}
	}
	defer unlock()
	lives, err := s.lives()
	if err != nil {
		return Life{} // a hint only: what can't be read is as good as never seen
	}
	return lives[key]
}

// Saw keeps the life of the runtime of that Key for the relays to come.
func (s *Store) Saw(key string, seen Life) error {
	unlock, err := s.own()
	if err != nil {
		return err
	}
	defer unlock()
	lives, err := s.lives()
	if err != nil { // damaged, and no loss: it begins anew
		lives = map[string]Life{}
	}
	lives[key] = seen
	for len(lives) > maxLives {
		delete(lives, oldest(lives))
	}
	return s.writeLives(lives)
}

// forget drops a life. The caller holds the lock.
func (s *Store) forget(key string) error {
	lives, err := s.lives()
	if err != nil || lives[key] == (Life{}) {
		return nil
	}
	delete(lives, key)
	return s.writeLives(lives)
}

// lives reads the file. The caller holds the lock.
func (s *Store) lives() (map[string]Life, error) {
	lives := map[string]Life{}
	f, err := os.Open(filepath.Join(s.dir, livesName))
	if errors.Is(err, fs.ErrNotExist) {
		return lives, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &lives); err != nil || lives == nil {
		return nil, fmt.Errorf("%w: %q", ErrDamaged, livesName)
	}
	return lives, nil
}

func (s *Store) writeLives(lives map[string]Life) error {
	text, err := json.MarshalIndent(lives, "", "  ")
	if err == nil {
		err = replace(filepath.Join(s.dir, livesName), bytes.NewReader(append(text, '\n')))
	}
	if err != nil {
		return fmt.Errorf("keep what was seen of the runtimes: %v", err)
	}
	return nil
}

func oldest(lives map[string]Life) (key string) {
	for k, life := range lives {
		if key == "" || life.Since.Before(lives[key].Since) {
			key = k
		}
	}
	return key
}
