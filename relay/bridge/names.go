package bridge

import (
	"errors"
	"fmt"

	"colabrelay/relay/pairing"
)

// names are those that a bridge tries, in this order, if the caller gave none.
var names = []string{pairing.DefaultName, "colab-page", "colab-page-2", "colab-page-3"}

// checkName refuses a name at once that no bridge can pair.
func (b *Bridge) checkName(name string) error {
	if name == "" {
		return nil
	}
	if err := pairing.CheckName(name); err != nil {
		return err
	}
	_, err := b.nameFor(name, nil)
	return err
}

// nameFor returns the name for a new pairing. A pairing that a person made is never replaced,
// and neither is one of a bridge whose executor is among those that answer.
func (b *Bridge) nameFor(asked string, answer []executor) (string, error) {
	candidates := names
	if asked != "" {
		candidates = []string{asked}
	}
	for _, name := range candidates {
		old, err := b.cfg.Store.Get(name)
		switch {
		case errors.Is(err, pairing.ErrNotPaired), errors.Is(err, pairing.ErrDamaged): // Put keeps a damaged list aside
			return name, nil
		case err != nil:
			return "", err
		case old.FromPage && !isAmong(answer, name):
			return name, nil
		}
	}
	if asked == "" {
		return "", fmt.Errorf("%w: all of %q are in use; name another", ErrNameTaken, names)
	}
	return "", fmt.Errorf("%w: %q", ErrNameTaken, asked)
}

// save stores the pairing, under another name if the one that was asked for was taken
// meanwhile.
func (b *Bridge) save(r pairing.Runtime, asked string, answer []executor) (Paired, error) {
	name, err := b.nameFor(asked, answer)
	if errors.Is(err, ErrNameTaken) {
		name, err = b.nameFor("", answer)
	}
	if err != nil {
		return Paired{}, err
	}
	r.Name = name
	before, err := b.cfg.Store.Put(r)
	if err != nil {
		return Paired{}, err
	}
	paired := Paired{Runtime: r}
	if before.Damage != nil {
		paired.Notes = append(paired.Notes, "Note: "+before.Damage.Error()+".")
	}
	if before.URL != "" {
		paired.Notes = append(paired.Notes, fmt.Sprintf("It replaces the pairing of an earlier start_executor with %s, whose executor no longer answers.", before.URL))
	}
	return paired.withDefault(b), nil
}

// withDefault adds which runtime calls use that name none, if that is another one.
func (p Paired) withDefault(b *Bridge) Paired {
	usual, err := pairing.Resolve("", b.cfg.Getenv, b.cfg.Store)
	switch {
	case err == nil && usual.Name == p.Runtime.Name:
	case err == nil:
		p.Notes = append(p.Notes, fmt.Sprintf("Without a runtime, calls use %q, which is another pairing: give the runtime %q to use this VM.", usual.Name, p.Runtime.Name))
	default:
		p.Notes = append(p.Notes, fmt.Sprintf("Give the runtime %q in calls to use this VM.", p.Runtime.Name))
	}
	return p
}
