package pairing

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"colabrelay/shared/auth"
)

// sharedName is a file of an earlier release, which used one secret for every runtime.
// Only the runtime named default takes that secret over, because whoever learns the secret
// of one executor must not be able to use another.
const sharedName = "executor-secret"

// ErrNoSecret: the runtime has no secret yet.
var ErrNoSecret = errors.New("no secret")

// Origin says where the secret of a runtime that Own returns is from.
type Origin int

const (
	Kept     Origin = iota // the runtime already had it
	Made                   // Own generated it for a runtime without one
	Replaced               // Own generated it instead of an earlier one
	Adopted                // the shared one of an earlier release
)

// Own returns the runtime of that name. It generates the runtime's secret if there is
// none, and replaces it if rotate is true. The runtime has no address until a Put sets one.
func (s *Store) Own(name string, rotate bool) (Runtime, Origin, Before, error) {
	fail := func(err error) (Runtime, Origin, Before, error) { return Runtime{}, Kept, Before{}, err }
	if err := CheckName(name); err != nil {
		return fail(err)
	}
	unlock, err := s.lockForChange()
	if err != nil {
		return fail(err)
	}
	defer unlock()
	all, before, err := s.readForChangeLocked()
	if err != nil {
		return fail(err)
	}
	r, found := all[name]
	shown := found && r.FromPage // from now on the person may keep its secret, as in Colab's Secrets
	r.FromPage = false
	if found && !rotate {
		if shared, err := s.shared(name); err == nil && shared.Equal(r.Secret) {
			_ = os.Remove(s.sharedPath()) // nothing reads this copy any more
		}
		if shown {
			all[name] = r
			err = s.writeLocked(all)
		}
		return r, Kept, before, err
	}
	origin := Made
	r.Name, r.Secret = name, auth.GenerateSecret()
	shared, err := s.shared(name)
	switch none := errors.Is(err, ErrNoSecret); {
	case rotate && (found || !none):
		origin = Replaced
	case rotate || none:
	case err != nil:
		return fail(err)
	default:
		origin, r.Secret = Adopted, shared
	}
	all[name] = r
	if err := s.writeLocked(all); err != nil {
		return fail(err)
	}
	if name == DefaultName { // adopted, or replaced on request
		_ = os.Remove(s.sharedPath())
	}
	return r, origin, before, nil
}

// SecretOf returns the secret of the runtime of that name, or ErrNoSecret. An invalid
// name is ErrBadName.
func (s *Store) SecretOf(name string) (auth.Secret, error) {
	if err := CheckName(name); err != nil {
		return auth.Secret{}, err
	}
	r, err := s.Get(name)
	if errors.Is(err, ErrNotPaired) {
		return s.shared(name)
	}
	return r.Secret, err
}

func (s *Store) sharedPath() string { return filepath.Join(s.dir, sharedName) }

// shared returns an earlier release's secret for the runtime of that name, or ErrNoSecret.
func (s *Store) shared(name string) (auth.Secret, error) {
	if name != DefaultName {
		return auth.Secret{}, ErrNoSecret
	}
	secret, err := auth.ReadSecretFile(s.sharedPath())
	if errors.Is(err, fs.ErrNotExist) {
		return auth.Secret{}, ErrNoSecret
	}
	if err != nil {
		return auth.Secret{}, fmt.Errorf("read the secret of an earlier release: %v; delete that file, and a new secret will be made", err)
	}
	return secret, nil
}
