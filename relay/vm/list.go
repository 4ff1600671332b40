package vm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/suggest"
	"colabrelay/shared/keep"
)

// State is what is known of a VM.
type State string

// States.
const (
	StateReady       State = "ready"                             // paired
	StateStarting    State = "starting"                          // a relay process works on it
	StateInterrupted State = "start interrupted"                 // it exists, and nobody works on it
	StateNotFound    State = "asked for; not found on Colab"     // it may not have been created
	StateEnded       State = "ended by Colab"                    // it existed
	StateUnpaired    State = "runs, but is not paired"           // somebody removed its pairing, or used its name
	StateStopping    State = "stopping"                          // somebody asked for its end
	StateStopped     State = "stopped"                           // seen to be gone; no longer listed
	StateForeign     State = "not started by this computer"      // another one, or a notebook
	StateUnknown     State = "unknown: Colab did not answer"     // see Note
	StateLost        State = "started by a relay, not on record" // by another computer, or the record was lost
)

// VM is a VM as people and agents see it.
type VM struct {
	ID          string    `json:"id"`
	Name        string    `json:"name,omitempty"` // of the VM and its runtime
	Backend     string    `json:"backend"`
	Accelerator string    `json:"accelerator"` // CPU for none
	HighRAM     bool      `json:"high_ram,omitempty"`
	State       State     `json:"state"`
	Ours        bool      `json:"ours"`           // this computer started it
	Via         Way       `json:"via,omitempty"`  // how its executor is reached
	Asked       time.Time `json:"asked,omitzero"` // when it was asked for
	Note        string    `json:"note,omitempty"`
}

// Hardware names what the VM has.
func (v VM) Hardware() string {
	if v.HighRAM {
		return v.Accelerator + ", high RAM"
	}
	return v.Accelerator
}

// Listing is the answer of List.
type Listing struct {
	VMs   []VM     `json:"vms"`   // those of this computer first, the oldest first
	Notes []string `json:"notes"` // what may be missing, and why
}

// maxForeign bounds the VMs of a listing that this computer did not start.
const maxForeign = 50

// List returns all VMs on record and all that the backends see.
func (m *Manager) List(ctx context.Context) (Listing, error) {
	l := Listing{VMs: []VM{}, Notes: []string{}}
	records, err := m.store.read()
	if errors.Is(err, ErrDamaged) {
		_, err = m.store.change(func(all []Record) ([]Record, error) { return all, nil })
		l.Notes = append(l.Notes, "The record of VMs was damaged and is kept under another name beside it; VMs that this computer started may appear below as others' VMs.")
	}
	if err != nil {
		return l, err
	}
	backends := map[string][]Machine{}
	failures := map[string]error{}
	for _, name := range m.backendsOf(records) {
		b, err := m.cfg.Open(name)
		if err == nil {
			backends[name], err = machines(ctx, b)
		}
		failures[name] = err
		if failures[name] != nil {
			l.Notes = append(l.Notes, fmt.Sprintf("The VMs of the backend %s are not known: %s", name, shown(failures[name])))
		}
	}
	for _, r := range records {
		seen, found := machineWith(backends[r.Backend], r.ID)
		l.VMs = append(l.VMs, m.statusOf(r, seen, found, failures[r.Backend]))
	}
	sort.SliceStable(l.VMs, func(i, j int) bool { return l.VMs[i].Asked.Before(l.VMs[j].Asked) })
	for _, name := range slices.Sorted(maps.Keys(backends)) {
		l.addForeign(name, backends[name], records)
	}
	if slices.ContainsFunc(l.VMs, func(v VM) bool { return v.State == StateReady }) {
		l.Notes = append(l.Notes, KeepText)
	}
	return l, nil
}

// backendsOf names the backends that may have VMs: the login's, and those of the records.
func (m *Manager) backendsOf(records []Record) (names []string) {
	if login, err := LoadLogin(m.cfg.Dir); err == nil {
		names = append(names, login.Backend)
	}
	for _, r := range records {
		if !slices.Contains(names, r.Backend) {
			names = append(names, r.Backend)
		}
	}
	return names
}

func (l *Listing) addForeign(backend string, all []Machine, records []Record) {
	sort.Slice(all, func(i, j int) bool { return all[i].ID < all[j].ID })
	n := 0
	for _, machine := range all {
		if slices.ContainsFunc(records, func(r Record) bool { return r.ID == machine.ID }) {
			continue
		}
		if n++; n > maxForeign {
			continue
		}
		state := StateForeign
		if idPattern().MatchString(machine.ID) {
			state = StateLost
		}
		l.VMs = append(l.VMs, VM{ID: shownID(machine.ID), Backend: backend, Accelerator: shownID(machine.Spec.Accelerator), HighRAM: machine.Spec.HighRAM, State: state})
	}
	if n > maxForeign {
		l.Notes = append(l.Notes, fmt.Sprintf("%d more VMs that this computer did not start are not shown.", n-maxForeign))
	}
}

// status is the VM of a record that was just seen.
func (m *Manager) status(r Record) VM { return m.statusOf(r, Machine{}, true, nil) }

// statusOf combines what the record says with what the backend sees.
func (m *Manager) statusOf(r Record, seen Machine, found bool, failure error) VM {
	v := VM{ID: r.ID, Name: r.Name, Backend: r.Backend, Accelerator: r.Accelerator, HighRAM: r.HighRAM, Ours: true, Via: r.Via, Asked: r.Asked, Note: r.Failure}
	switch {
	case failure != nil:
		v.State, v.Note = StateUnknown, shown(failure)
	case r.Step == Stopping:
		v.State = StateStopping
	case m.store.isOwned(r.ID) && r.Step != Paired:
		v.State = StateStarting
	case found && r.Step == Paired:
		v.State = StateUnpaired
		if m.isPaired(r) {
			v.State = StateReady
		}
	case found:
		v.State = StateInterrupted
	case r.Step == Asked || time.Since(r.Asked) < m.limits.appear:
		v.State = StateNotFound
	default:
		v.State = StateEnded
	}
	return v
}

// shownID makes a text of the service, or one that somebody typed, safe to show.
func shownID(id string) string { return plain.Clip(id, 100) }

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
	if _, underWay := m.starts.Find(rec.Name); !underWay {
		m.starts.Forget(rec.Name)
	}
	v.State = StateStopped
	return v, nil
}

// markStopping notes on disk that the VM is to end, so that no start goes on with it. The
// step of the returned record is the one before.
func (m *Manager) markStopping(idOrName string) (rec Record, err error) {
	_, err = m.store.change(func(all []Record) ([]Record, error) {
		r := find(all, idOrName)
		if r == nil {
			return nil, fmt.Errorf("%w %q%s", ErrUnknown, shownID(idOrName), suggest.Meant(shownID(idOrName), namesOf(all)))
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
	if all, err := m.store.read(); err == nil && find(all, rec.ID) == nil {
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
	v := VM{ID: shownID(id), Backend: b.Name(), Accelerator: shownID(seen.Spec.Accelerator), HighRAM: seen.Spec.HighRAM, State: StateForeign}
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
