package pairing

import (
	"errors"

	"colabrelay/shared/auth"
)

// ErrNoSecret: the runtime has no secret yet.
var ErrNoSecret = errors.New("no secret")

// Origin says where the secret of a runtime that Own returns is from.
type Origin int

const (
	Kept     Origin = iota // the runtime already had it
	Made                   // Own generated it for a runtime without one
	Replaced               // Own generated it instead of an earlier one
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
		if shown {
			all[name] = r
			err = s.writeLocked(all)
		}
		return r, Kept, before, err
	}
	origin := Made
	if found {
		origin = Replaced
	}
	r.Name, r.Secret = name, auth.GenerateSecret()
	all[name] = r
	if err := s.writeLocked(all); err != nil {
		return fail(err)
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
		return auth.Secret{}, ErrNoSecret
	}
	return r.Secret, err
}
