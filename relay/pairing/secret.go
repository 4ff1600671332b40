package pairing

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"colabrelay/shared/auth"
)

// sharedName is the file of an earlier release, which gave one secret to every runtime. It
// passes to the runtime named default, whose executor has it, and to no other: a request
// signed for one executor must not fit another.
const sharedName = "executor-secret"

// ErrNoSecret means that a runtime has no secret of its own yet.
var ErrNoSecret = errors.New("no secret")

// Origin is where the secret that Own gives came from.
type Origin int

// Origins of a secret.
const (
	Kept    Origin = iota // the runtime had it
	Made                  // made now
	Adopted               // the shared one of an earlier release
)

// Own is the runtime of that name with a secret of its own, made where it has none, or
// made anew when rotate says so. It has no address before a Put gave it one.
func (s *Store) Own(name string, rotate bool) (Runtime, Origin, Before, error) {
	fail := func(err error) (Runtime, Origin, Before, error) { return Runtime{}, Kept, Before{}, err }
	if err := checkName(name); err != nil {
		return fail(err)
	}
	unlock, err := s.own()
	if err != nil {
		return fail(err)
	}
	defer unlock()
	all, before, err := s.readForChange()
	if err != nil {
		return fail(err)
	}
	r, found := all[name]
	if found && !rotate {
		if shared, err := s.shared(name); err == nil && shared.Equal(r.Secret) {
			_ = os.Remove(s.sharedPath()) // a copy that nothing reads any more
		}
		return r, Kept, before, nil
	}
	origin := Made
	r.Name, r.Secret = name, auth.GenerateSecret()
	if shared, err := s.shared(name); err == nil && !rotate {
		origin, r.Secret = Adopted, shared
	} else if err != nil && !rotate && !errors.Is(err, ErrNoSecret) {
		return fail(err)
	}
	all[name] = r
	if err := s.write(all); err != nil {
		return fail(err)
	}
	if name == DefaultName { // adopted, or replaced on request
		_ = os.Remove(s.sharedPath())
	}
	return r, origin, before, nil
}

// SecretOf is the secret of the runtime of that name, or ErrNoSecret.
func (s *Store) SecretOf(name string) (auth.Secret, error) {
	r, err := s.Get(name)
	if errors.Is(err, ErrNotPaired) {
		return s.shared(name)
	}
	return r.Secret, err
}

func (s *Store) sharedPath() string { return filepath.Join(s.dir, sharedName) }

// shared is an earlier release's secret for the runtime of that name, or ErrNoSecret.
func (s *Store) shared(name string) (auth.Secret, error) {
	if name != DefaultName {
		return auth.Secret{}, ErrNoSecret
	}
	secret, err := auth.ReadSecretFile(s.sharedPath())
	if errors.Is(err, fs.ErrNotExist) {
		return auth.Secret{}, ErrNoSecret
	}
	if err != nil {
		return auth.Secret{}, fmt.Errorf("read the secret of an earlier release: %v; delete that file to have a new secret made", err)
	}
	return secret, nil
}
