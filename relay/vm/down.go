package vm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"colabrelay/relay/pairing"
	"colabrelay/relay/suggest"
	"colabrelay/shared/keep"
)

// Down stops a VM and returns after it was seen to be gone. A VM that this computer did not
// start is stopped only with force. It ends a start in progress, also one of another
// process. The pairing is removed if it is still this VM's.
//
// If it returns ErrNotConfirmed, the record stays, so the VM is still listed.
func (m *Manager) Down(ctx context.Context, idOrName string, force bool) (VM, error) {
	rec, err := m.markStopping(idOrName)
	if errors.Is(err, ErrUnknown) {
		return m.downForeign(ctx, idOrName, force, err)
	}
	if err != nil && !errors.Is(err, keep.ErrNotWritten) { // a full disk must not keep a VM running
		return VM{}, err
	}
	v := m.status(rec)
	if err := m.stop(ctx, rec); err != nil {
		return v, fmt.Errorf("stop VM %q (%s): %w", rec.Name, rec.ID, err)
	}
	m.forgetResult(rec.Name)
	v.State = StateStopped
	return v, nil
}

// markStopping notes on disk that the VM is to end, so that no start goes on with it. The
// step of the returned record is the one before.
func (m *Manager) markStopping(idOrName string) (rec Record, err error) {
	_, err = m.store.change(func(all []Record) ([]Record, error) {
		r := find(all, idOrName)
		if r == nil {
			return nil, fmt.Errorf("%w %q%s", ErrUnknown, clip(idOrName), suggest.Meant(clip(idOrName), namesOf(all)))
		}
		rec = *r
		r.Step, r.Unconfirmed = Stopping, r.Unconfirmed || r.Step == Asked
		rec.Unconfirmed = r.Unconfirmed
		return all, nil
	})
	return rec, err
}

func namesOf(all []Record) (names []string) {
	for _, r := range all {
		names = append(names, r.Name)
	}
	return names
}

// stop ends the VM of a record that is marked.
func (m *Manager) stop(ctx context.Context, rec Record) error {
	b, err := m.cfg.Open(rec.Backend)
	if err != nil {
		return err
	}
	release, err := m.store.own(ctx, rec.ID) // a start of it ends soon, because of the mark
	if err != nil {
		return err
	}
	defer release()
	if all, err := m.store.read(); err == nil && findID(all, rec.ID) == nil {
		return nil // another process has stopped it meanwhile
	}
	found, err := deleted(ctx, b, rec.ID)
	if err != nil {
		return err
	}
	if left := m.limits.appear - time.Since(rec.Asked); !found && rec.Unconfirmed && left > 0 {
		return fmt.Errorf("%w: Google was asked for it %s ago; it is not listed, but may still be created: stop it again in %s", ErrNotConfirmed, time.Since(rec.Asked).Round(time.Second), left.Round(time.Second))
	}
	if err := errors.Join(m.unpair(rec), m.store.remove(rec.ID)); err != nil {
		return fmt.Errorf("the VM is gone, but its entry or its pairing could not be removed: %w", err)
	}
	return nil
}

// deleted deletes a VM and makes sure that it is gone. It reports whether it was there.
func deleted(ctx context.Context, b Backend, id string) (found bool, err error) {
	before, err := machines(ctx, b)
	if err != nil {
		return false, err
	}
	_, found = machineWith(before, id)
	if err := b.Delete(ctx, id); err != nil && !errors.Is(err, ErrGone) {
		return found, err
	}
	after, err := machines(ctx, b)
	if err != nil {
		return found, fmt.Errorf("%w: %w", ErrNotConfirmed, err)
	}
	if _, still := machineWith(after, id); still {
		return found, fmt.Errorf("%w: Google still lists it", ErrNotConfirmed)
	}
	return found, nil
}

// unpair removes the VM's runtime, unless the name was paired with another one since.
func (m *Manager) unpair(rec Record) error {
	err := m.cfg.Pairings.RemoveIf(rec.Name, rec.mustBe)
	if errors.Is(err, pairing.ErrNotPaired) || errors.Is(err, ErrNameTaken) {
		return nil
	}
	return err
}

// downForeign stops a VM that is not on record, as unknown says.
func (m *Manager) downForeign(ctx context.Context, id string, force bool, unknown error) (VM, error) {
	b, err := m.open("")
	if err != nil {
		return VM{}, errors.Join(unknown, err)
	}
	all, err := machines(ctx, b)
	if err != nil {
		return VM{}, errors.Join(unknown, err)
	}
	seen, found := machineWith(all, id)
	v := VM{ID: shownID(id), Backend: b.Name(), Accelerator: acceleratorOf(seen.Spec), HighRAM: seen.Spec.HighRAM, State: StateForeign}
	switch {
	case !found:
		return VM{}, unknown
	case !force:
		return VM{}, fmt.Errorf("%w %q", ErrNotOurs, v.ID)
	}
	if _, err := deleted(ctx, b, id); err != nil {
		return VM{}, fmt.Errorf("stop VM %q: %w", v.ID, err)
	}
	v.State = StateStopped
	return v, nil
}

// Names returns the names of the VMs on record, sorted.
func (m *Manager) Names() []string {
	all, err := m.store.read()
	if err != nil {
		return nil
	}
	names := namesOf(all)
	slices.Sort(names)
	return names
}
