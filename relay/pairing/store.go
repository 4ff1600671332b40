// Package pairing stores which runtimes this laptop is paired with, the secret of each
// (even before its address is known), and which VM and kernel of each the relay last
// saw. It also decides which runtime a call uses.
//
// It must not talk to a runtime, use a list that has changed since (a running relay uses a
// pairing made by `colab-relay pair` from its next call on), or drop a pairing it cannot read.
// Start reading at Store here and Resolve.
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
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/natefinch/atomic"

	"colabrelay/shared/aside"
	"colabrelay/shared/auth"
	"colabrelay/shared/bounded"
)

const (
	// DefaultName is the name that `colab-relay pair` uses without --name.
	DefaultName = "default"
	// EnvName names the runtime that COLAB_URL and COLAB_SECRET describe. It is
	// never stored.
	EnvName = "env"

	fileName = "runtimes.json"
	lockName = "runtimes.lock"
	// lockLimit bounds the wait for another relay's lock. Relays hold the lock for
	// milliseconds, so one that holds it longer hangs.
	lockLimit = 5 * time.Second
	lockRetry = 10 * time.Millisecond
)

// Errors that callers distinguish.
var (
	ErrNotPaired = errors.New("not paired")
	// ErrUnknownName means ErrNotPaired for one name, while other runtimes are paired.
	ErrUnknownName = fmt.Errorf("%w", ErrNotPaired)
	ErrAmbiguous   = errors.New("several runtimes are paired")
	ErrDamaged     = errors.New("the list of paired runtimes is damaged")
	ErrBadName     = errors.New("invalid runtime name")
	ErrNoAddress   = errors.New("not connected yet")
)

// Runtime is one executor this laptop may use.
type Runtime struct {
	Name   string
	URL    string // base URL without a trailing slash; empty before it is known
	Secret auth.Secret
	Chosen bool // by Choose; Put keeps what it was
	// Provider names what makes the connections to URL if they need more than the URL, such
	// as the tokens of Google's proxy; empty for all others. VMID is the VM's id there.
	Provider string
	VMID     string
	// FromPage says that a bridge over Colab's page made the pairing. Its executor ends with
	// the VM and its secret exists nowhere else, so a later bridge may replace it.
	FromPage bool
	// SSHHost is the machine whose executor `colab-relay ssh` connects to URL; empty for others.
	SSHHost string
	// SSHArguments are what followed the host when that command last connected, without --name.
	SSHArguments []string
}

// Store is the file of paired runtimes in a folder. Any number of programs may
// use it at the same time.
type Store struct {
	dir string

	mu   sync.Mutex
	info fs.FileInfo        // of the list as last read; nil if it must be read again
	all  map[string]Runtime // its content
}

// sureAge is how long ago a list must have changed before it is kept in memory. File systems
// record the time of a change in steps of up to two seconds, so a second change soon after
// the first may not show.
const sureAge = 3 * time.Second

// Open returns the store in dir. It reads and creates nothing.
func Open(dir string) *Store { return &Store{dir: dir} }

// OpenDefault returns this user's store.
func OpenDefault() (*Store, error) {
	dir, err := DefaultDir()
	if err != nil {
		return nil, err
	}
	return Open(dir), nil
}

// DefaultDir returns the folder of this user's store.
func DefaultDir() (string, error) {
	config, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the folder for pairings: %v", err)
	}
	return filepath.Join(config, "colab-relay"), nil
}

// Path returns the path of the store's file.
func (s *Store) Path() string { return filepath.Join(s.dir, fileName) }

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Before is what a Put replaced. Callers report both to the user.
type Before struct {
	URL    string // the runtime's previous address, if it was a different one
	Damage error  // ErrDamaged, and the name under which the damaged list is kept
}

// Put stores a runtime and replaces the one of the same name. It renames a damaged
// file and starts a new list.
func (s *Store) Put(r Runtime) (Before, error) {
	return s.PutIf(r, func(Runtime) error { return nil })
}

// PutIf is Put, unless allow returns an error for the runtime that has the name now. Nobody
// can change that one in between.
func (s *Store) PutIf(r Runtime, allow func(old Runtime) error) (Before, error) {
	if err := r.check(); err != nil {
		return Before{}, err
	}
	r.URL = strings.TrimRight(r.URL, "/")
	unlock, err := s.lockForChange()
	if err != nil {
		return Before{}, err
	}
	defer unlock()
	all, before, err := s.readForChangeLocked()
	if err != nil {
		return Before{}, err
	}
	old, found := all[r.Name]
	if found {
		if err := allow(old); err != nil {
			return before, err
		}
	}
	if old.URL != r.URL {
		before.URL = old.URL
	}
	r.Chosen = old.Chosen
	all[r.Name] = r
	return before, s.writeLocked(all)
}

// CheckName returns ErrBadName and the rule for a name that no runtime may have.
func CheckName(name string) error {
	if !namePattern.MatchString(name) || name == EnvName {
		return fmt.Errorf("%w %q: use at most 64 letters, digits, dots, dashes and underscores, begin with a letter or digit, and do not use %q", ErrBadName, name, EnvName)
	}
	return nil
}

// check returns an error for a runtime that must not be stored.
func (r Runtime) check() error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	if err := auth.CheckURL(r.URL); err != nil {
		return fmt.Errorf("runtime %q: %v", r.Name, err)
	}
	if r.Secret.IsZero() {
		return fmt.Errorf("runtime %q has no secret", r.Name)
	}
	if (r.Provider == "") != (r.VMID == "") {
		return fmt.Errorf("runtime %q has provider %q and VM %q: it needs both or neither", r.Name, r.Provider, r.VMID)
	}
	return nil
}

// Remove deletes the runtime of that name and what was last seen of it, or returns
// ErrNotPaired.
func (s *Store) Remove(name string) error {
	return s.RemoveIf(name, func(Runtime) error { return nil })
}

// RemoveIf is Remove, unless allow returns an error for that runtime.
func (s *Store) RemoveIf(name string, allow func(Runtime) error) error {
	if _, err := s.Get(name); err != nil { // creates no folder
		return err
	}
	unlock, err := s.lockForChange()
	if err != nil {
		return err
	}
	defer unlock()
	all, err := s.readLocked()
	if err != nil {
		return err
	}
	old, found := all[name]
	if !found {
		return unknown(name, all)
	}
	if err := allow(old); err != nil {
		return err
	}
	delete(all, name)
	if err := s.writeLocked(all); err != nil {
		return err
	}
	return s.forgetLocked(name)
}

// lockForChange creates the folder and takes the exclusive lock.
func (s *Store) lockForChange() (unlock func(), err error) {
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
	return Runtime{}, unknown(name, all)
}

// List returns all runtimes, sorted by name.
func (s *Store) List() ([]Runtime, error) {
	all, err := s.load()
	if err != nil {
		return nil, err
	}
	var sorted []Runtime
	for _, name := range slices.Sorted(maps.Keys(all)) {
		sorted = append(sorted, all[name])
	}
	return sorted, nil
}

func (s *Store) load() (map[string]Runtime, error) {
	info, err := os.Stat(s.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]Runtime{}, nil
	}
	if err == nil {
		if all, ok := s.unchanged(info); ok {
			return all, nil
		}
	}
	unlock, err := s.readLock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	return s.readLocked()
}

// unchanged returns the list as last read, if info says that it is still the same.
func (s *Store) unchanged(info fs.FileInfo) (map[string]Runtime, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.info == nil || !os.SameFile(s.info, info) || !s.info.ModTime().Equal(info.ModTime()) || s.info.Size() != info.Size() {
		return nil, false
	}
	return maps.Clone(s.all), true
}

// keep remembers the list that was read from f.
func (s *Store) keep(f *os.File, all map[string]Runtime) {
	info, err := f.Stat()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info = nil
	if err == nil && time.Since(info.ModTime()) > sureAge {
		s.info, s.all = info, maps.Clone(all)
	}
}

// readLock takes the shared lock, because on Windows a file that is being read cannot be
// replaced. If the lock file cannot be created, as in a read-only folder, no program
// can replace the file either, and unlock does nothing.
func (s *Store) readLock() (unlock func(), err error) {
	unlock, err = s.lock((*flock.Flock).TryRLockContext)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return func() {}, nil
	}
	return unlock, err
}

// lock takes the lock with acquire. Each call opens its own file handle, so the lock also
// works between goroutines of one program.
func (s *Store) lock(acquire func(*flock.Flock, context.Context, time.Duration) (bool, error)) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockLimit)
	defer cancel()
	l := flock.New(filepath.Join(s.dir, lockName), flock.SetPermissions(0o600))
	if _, err := acquire(l, ctx, lockRetry); err != nil {
		return nil, fmt.Errorf("lock %q: %w", l.Path(), err)
	}
	return func() { _ = l.Close() }, nil // closing the file releases the lock
}

func (s *Store) readLocked() (map[string]Runtime, error) {
	f, err := bounded.Open(s.Path())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return map[string]Runtime{}, nil
	case errors.Is(err, bounded.ErrNotFile):
		return nil, fmt.Errorf("%w: %v", ErrDamaged, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read the paired runtimes: %v", err)
	}
	defer f.Close()
	all, err := decode(f)
	if err != nil {
		return nil, fmt.Errorf("%w (file %q)", err, s.Path())
	}
	s.keep(f, all)
	return all, nil
}

// readForChangeLocked reads the list for a caller that will write it. It renames a
// damaged file.
func (s *Store) readForChangeLocked() (map[string]Runtime, Before, error) {
	var before Before
	all, err := s.readLocked()
	if errors.Is(err, ErrDamaged) {
		all = map[string]Runtime{}
		before.Damage, err = s.setAsideLocked(err)
	}
	return all, before, err
}

func (s *Store) writeLocked(all map[string]Runtime) error {
	text, err := encode(all)
	if err != nil {
		return err
	}
	if err := replace(s.Path(), text); err != nil {
		return fmt.Errorf("write the paired runtimes: %v", err)
	}
	return nil
}

// replace writes a file atomically, readable by this user only.
func replace(path string, text io.Reader) error {
	// WriteFile keeps the mode of the old file.
	if err := os.Chmod(path, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return atomic.WriteFile(path, text)
}

// setAsideLocked renames the damaged file and reports its new name.
func (s *Store) setAsideLocked(damage error) (report, err error) {
	kept, err := aside.Move(s.Path())
	if err != nil {
		return nil, err
	}
	return fmt.Errorf("%w; the damaged file is kept as %q, and a new list was started", damage, kept), nil
}
