// Package pairing remembers which runtimes this laptop is paired with and which
// life of each it saw last, keeps a secret for each runtime, also before its address is
// known, and says which runtime a call means.
//
// It must not talk to a runtime, keep anything in memory between calls (a
// pairing made by `relay pair` counts at once in a relay that is running), or
// drop a pairing it can't read. Start reading at Store here and Resolve.
package pairing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/natefinch/atomic"

	"colabrelay/shared/auth"
)

const (
	// DefaultName is what `relay pair` without --name writes.
	DefaultName = "default"
	// EnvName is the runtime that COLAB_URL and COLAB_SECRET describe. It is
	// never stored.
	EnvName = "env"

	fileName = "runtimes.json"
	lockName = "runtimes.lock"
	// lockLimit bounds the wait for another relay that holds the file: they
	// hold it for milliseconds, so one that takes longer hangs.
	lockLimit = 5 * time.Second
	lockRetry = 10 * time.Millisecond
)

// Errors that callers tell apart.
var (
	ErrNotPaired = errors.New("not paired")
	ErrAmbiguous = errors.New("several runtimes are paired")
	ErrDamaged   = errors.New("the list of paired runtimes is damaged")
	ErrBadName   = errors.New("bad name of a runtime")
	ErrNoAddress = errors.New("not connected yet")
)

// Runtime is one executor this laptop may use.
type Runtime struct {
	Name   string
	URL    string // base URL without a trailing slash; empty before it is known
	Secret auth.Secret
}

// Store is the file of paired runtimes in a folder. Any number of programs may
// use it at the same time.
type Store struct{ dir string }

// Open names the store in dir; nothing is read or made yet.
func Open(dir string) *Store { return &Store{dir: dir} }

// DefaultDir is the store's folder for this user.
func DefaultDir() (string, error) {
	config, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the user's config folder: %v", err)
	}
	return filepath.Join(config, "colab-relay"), nil
}

// Path is the store's file.
func (s *Store) Path() string { return filepath.Join(s.dir, fileName) }

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Before is what a Put found in its way. People are to be told of both.
type Before struct {
	URL    string // the other address this runtime had; empty where it had none
	Damage error  // ErrDamaged, with the name the lost list is kept under
}

// Put stores a runtime and replaces the one of the same name. A damaged file is
// put aside, and a new list begun.
func (s *Store) Put(r Runtime) (Before, error) {
	if err := r.check(); err != nil {
		return Before{}, err
	}
	r.URL = strings.TrimRight(r.URL, "/")
	unlock, err := s.own()
	if err != nil {
		return Before{}, err
	}
	defer unlock()
	all, before, err := s.readForChange()
	if err != nil {
		return Before{}, err
	}
	if old := all[r.Name].URL; old != r.URL {
		before.URL = old
	}
	all[r.Name] = r
	return before, s.write(all)
}

func checkName(name string) error {
	if !namePattern.MatchString(name) || name == EnvName {
		return fmt.Errorf("%w: %q: use letters, digits, dot, dash and underscore, at most 64, and not %q", ErrBadName, name, EnvName)
	}
	return nil
}

// check refuses what may not be stored.
func (r Runtime) check() error {
	if err := checkName(r.Name); err != nil {
		return err
	}
	if err := auth.CheckURL(r.URL); err != nil {
		return fmt.Errorf("runtime %q: %v", r.Name, err)
	}
	if r.Secret.IsZero() {
		return fmt.Errorf("runtime %q: no secret", r.Name)
	}
	return nil
}

// Remove forgets the runtime of that name and its lives, or says ErrNotPaired.
func (s *Store) Remove(name string) error {
	if _, err := s.Get(name); err != nil { // makes no folder for nothing
		return err
	}
	unlock, err := s.own()
	if err != nil {
		return err
	}
	defer unlock()
	all, err := s.read()
	if err != nil {
		return err
	}
	delete(all, name)
	if err := s.write(all); err != nil {
		return err
	}
	return s.forget(name)
}

// own makes the folder and takes the lock, for a change.
func (s *Store) own() (unlock func(), err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the config folder: %v", err)
	}
	return s.lock((*flock.Flock).TryLockContext)
}

// Get returns the runtime of that name, or ErrNotPaired.
func (s *Store) Get(name string) (Runtime, error) {
	all, err := s.load()
	if err != nil {
		return Runtime{}, err
	}
	if r, ok := all[name]; ok {
		return r, nil
	}
	return Runtime{}, fmt.Errorf("%w: %s", ErrNotPaired, unknown(name, all))
}

// List returns all runtimes, sorted by name.
func (s *Store) List() ([]Runtime, error) {
	all, err := s.load()
	if err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(all), func(a, b Runtime) int { return strings.Compare(a.Name, b.Name) }), nil
}

func (s *Store) load() (map[string]Runtime, error) {
	if _, err := os.Stat(s.Path()); errors.Is(err, fs.ErrNotExist) {
		return map[string]Runtime{}, nil
	}
	unlock, err := s.readLock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	return s.read()
}

// readLock takes the lock shared: on Windows a file that is being read can't be
// replaced. Where the lock can't be made, as in a read-only folder, nobody replaces
// the file either, and it gives an unlock that does nothing.
func (s *Store) readLock() (unlock func(), err error) {
	unlock, err = s.lock((*flock.Flock).TryRLockContext)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return func() {}, nil
	}
	return unlock, err
}

// lock takes the lock the way try does. Each call has a file handle of its own,
// so it also keeps goroutines of one program apart.
func (s *Store) lock(try func(*flock.Flock, context.Context, time.Duration) (bool, error)) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockLimit)
	defer cancel()
	l := flock.New(filepath.Join(s.dir, lockName), flock.SetPermissions(0o600))
	if _, err := try(l, ctx, lockRetry); err != nil {
		return nil, fmt.Errorf("lock %q: %w", l.Path(), err)
	}
	return func() { _ = l.Close() }, nil // closing always gives the lock back
}

func (s *Store) read() (map[string]Runtime, error) {
	f, err := os.Open(s.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]Runtime{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the paired runtimes: %v", err)
	}
	defer f.Close()
	all, err := decode(f)
	if err != nil {
		return nil, fmt.Errorf("%w (file %q)", err, s.Path())
	}
	return all, nil
}

// readForChange reads the list for somebody who holds the lock and will write it. A
// damaged one is put aside.
func (s *Store) readForChange() (map[string]Runtime, Before, error) {
	var before Before
	all, err := s.read()
	if errors.Is(err, ErrDamaged) {
		all = map[string]Runtime{}
		before.Damage, err = s.setAside(err)
	}
	return all, before, err
}

func (s *Store) write(all map[string]Runtime) error {
	text, err := encode(all)
	if err != nil {
		return err
	}
	if err := replace(s.Path(), text); err != nil {
		return fmt.Errorf("write the paired runtimes: %v", err)
	}
	return nil
}

// replace writes a file that only this user may read, all of it or nothing.
func replace(path string, text io.Reader) error {
	// The new file takes over the mode of the old one.
	if err := os.Chmod(path, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return atomic.WriteFile(path, text)
}

// setAside renames the damaged file to a name that is free and says so.
func (s *Store) setAside(damage error) (told, err error) {
	kept := s.Path() + ".damaged-" + time.Now().UTC().Format("20060102T150405.000000000")
	if err := os.Rename(s.Path(), kept); err != nil {
		return nil, fmt.Errorf("put the damaged file aside: %v", err)
	}
	return fmt.Errorf("%w; it is kept as %q, and a new list is begun", damage, kept), nil
}
