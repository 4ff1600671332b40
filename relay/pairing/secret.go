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
func (s *Store) Own(name string, rotate bool) (r Runtime, origin Origin, before Before, err error) {
	if err := CheckName(name); err != nil {
		return r, origin, before, err
	}
	before.Damage, err = s.list.Change(func(l *list) error {
		found := false
		r, found = l.get(name)
		switch {
		case !found:
			r.Name, origin = name, Made
		case rotate:
			origin = Replaced
		}
		if origin != Kept {
			r.Secret = auth.GenerateSecret()
		}
		r.FromPage = false // from now on the person may keep its secret, as in Colab's Secrets
		l.put(r)
		return nil
	})
	return r, origin, before, err
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
