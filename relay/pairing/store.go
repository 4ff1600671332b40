// Package pairing stores which runtimes this laptop is paired with, the secret of each
// (even before its address is known), and which VM and kernel of each the relay last
// saw. It also decides which runtime a call uses.
//
// It must not talk to a runtime, use a list that has changed since (a running relay uses a
// pairing made by `colab-relay pair` from its next call on), or drop a pairing it cannot read.
// Start reading at Store here and Resolve.
package pairing

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"colabrelay/shared/auth"
	"colabrelay/shared/keep"
	"colabrelay/shared/lazy"
)

const (
	// DefaultName is the name that `colab-relay pair` uses without --name.
	DefaultName = "default"
	// EnvName names the runtime that COLAB_URL and COLAB_SECRET describe. It is
	// never stored.
	EnvName = "env"
)

// Errors that callers distinguish.
var (
	ErrNotPaired = errors.New("not paired")
	// ErrUnknownName means ErrNotPaired for one name, while other runtimes are paired.
	ErrUnknownName = fmt.Errorf("%w", ErrNotPaired)
	ErrAmbiguous   = errors.New("several runtimes are paired")
	ErrDamaged     = keep.ErrDamaged // the list cannot be read; Put keeps it under another name
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

// Store is the list of paired runtimes in a folder. Any number of programs may use it at the
// same time.
type Store struct {
	list keep.File[list]
	seen keep.File[map[string]LastSeen]
}

// Open returns the store in dir. It reads and creates nothing.
func Open(dir string) *Store {
	return &Store{
		list: keep.File[list]{Path: filepath.Join(dir, "runtimes.json"), What: "the list of paired runtimes", Max: maxFile, Check: (*list).check},
		seen: keep.File[map[string]LastSeen]{Path: filepath.Join(dir, "lives.json"), What: "what was last seen of the runtimes", Max: maxFile},
	}
}

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
func (s *Store) Path() string { return s.list.Path }

var namePattern = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

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
func (s *Store) PutIf(r Runtime, allow func(old Runtime) error) (before Before, err error) {
	if err := r.check(); err != nil {
		return before, err
	}
	r.URL = strings.TrimRight(r.URL, "/")
	before.Damage, err = s.list.Change(func(l *list) error {
		old, found := l.get(r.Name)
		if found {
			if err := allow(old); err != nil {
				return err
			}
		}
		if old.URL != r.URL {
			before.URL = old.URL
		}
		l.put(r)
		return nil
	})
	return before, err
}

// CheckName returns ErrBadName and the rule for a name that no runtime may have.
func CheckName(name string) error {
	if !namePattern().MatchString(name) || name == EnvName {
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
	err := s.changeOf(name, func(l *list, r Runtime) error {
		if err := allow(r); err != nil {
			return err
		}
		delete(l.Runtimes, name)
		if l.Chosen == name {
			l.Chosen = ""
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.forget(name)
}

// changeOf changes the list, which must have a runtime of that name. A damaged list stays.
func (s *Store) changeOf(name string, change func(*list, Runtime) error) error {
	if _, err := s.Get(name); err != nil { // creates no folder, and moves no damaged file
		return err
	}
	_, err := s.list.Change(func(l *list) error {
		r, found := l.get(name)
		if !found {
			return unknown(name, l.all())
		}
		return change(l, r)
	})
	return err
}

// Get returns the runtime of that name, or ErrNotPaired.
func (s *Store) Get(name string) (Runtime, error) {
	l, err := s.list.Read()
	if err != nil {
		return Runtime{}, err
	}
	if r, ok := l.get(name); ok {
		return r, nil
	}
	return Runtime{}, unknown(name, l.all())
}

// List returns all runtimes, sorted by name.
func (s *Store) List() ([]Runtime, error) {
	l, err := s.list.Read()
	return l.sorted(), err
}
