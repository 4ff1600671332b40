package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"colabrelay/relay/plain"
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
	Ours        bool      `json:"ours"`             // this computer started it
	Via         Way       `json:"via,omitempty"`    // how its executor is reached
	Asked       time.Time `json:"asked,omitzero"`   // when it was asked for
	Expires     time.Time `json:"expires,omitzero"` // as Colab says
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
		backends[name], failures[name] = m.see(ctx, name)
		if failures[name] != nil {
			l.Notes = append(l.Notes, fmt.Sprintf("The VMs of the backend %s are not known: %s", name, shown(failures[name])))
		}
	}
	for _, r := range records {
		seen, found := machineWith(backends[r.Backend], r.ID)
		l.VMs = append(l.VMs, m.statusOf(r, seen, found, failures[r.Backend]))
	}
	slices.SortStableFunc(l.VMs, func(a, b VM) int { return a.Asked.Compare(b.Asked) })
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

// see returns the VMs of a backend.
func (m *Manager) see(ctx context.Context, name string) ([]Machine, error) {
	b, err := m.cfg.Open(name)
	if err != nil {
		return nil, err
	}
	return machines(ctx, b)
}

func (l *Listing) addForeign(backend string, all []Machine, records []Record) {
	slices.SortFunc(all, func(a, b Machine) int { return cmp.Compare(a.ID, b.ID) })
	n := 0
	for _, machine := range all {
		if findID(records, machine.ID) != nil {
			continue
		}
		if n++; n > maxForeign {
			continue
		}
		state := StateForeign
		if idPattern().MatchString(machine.ID) {
			state = StateLost
		}
		l.VMs = append(l.VMs, VM{ID: shownID(machine.ID), Backend: backend, Accelerator: acceleratorOf(machine.Spec), HighRAM: machine.Spec.HighRAM, State: state, Expires: machine.Expires})
	}
	if n > maxForeign {
		l.Notes = append(l.Notes, fmt.Sprintf("%d more VMs that this computer did not start are not shown.", n-maxForeign))
	}
}

// status is the VM of a record that was just seen.
func (m *Manager) status(r Record) VM { return m.statusOf(r, Machine{}, true, nil) }

// statusOf combines what the record says with what the backend sees.
func (m *Manager) statusOf(r Record, seen Machine, found bool, failure error) VM {
	v := VM{ID: r.ID, Name: r.Name, Backend: r.Backend, Accelerator: r.Accelerator, HighRAM: r.HighRAM, Ours: true, Via: r.Via, Asked: r.Asked, Expires: seen.Expires, Note: r.Failure}
	switch {
	case failure != nil:
		v.State, v.Note = StateUnknown, shown(failure)
	case r.Step == Stopping:
		v.State = StateStopping
	case m.store.isOwned(r.ID) && r.Step != Paired:
		v.State = StateStarting
	case found && r.Step == Paired:
		v.State = StateUnpaired
		if p, err := m.cfg.Pairings.Get(r.Name); err == nil && r.pairedAs(p) {
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

// acceleratorOf names what a VM has.
func acceleratorOf(s Spec) string {
	if s.Accelerator == "" {
		return CPU
	}
	return shownID(s.Accelerator)
}

func shownSpec(s Spec) string { return shownID(s.String()) }

// maxShownID bounds an id of the service that is shown, in characters.
const maxShownID = 100

// shownID makes a text of the service safe to show.
func shownID(id string) string {
	text := []rune(plain.Line(id))
	return string(text[:min(len(text), maxShownID)])
}
