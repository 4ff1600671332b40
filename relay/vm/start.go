package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"colabrelay/relay/pairing"
	"colabrelay/shared/keep"
)

// watchEvery is how often a start looks whether somebody stops the VM.
const watchEvery = 300 * time.Millisecond

// creation is the start of one VM, from the request for an accelerator to its pairing.
type creation struct {
	*Manager
	b       Backend
	rec     Record // as on disk
	removed bool   // from disk
	request Request
	say     func(string)
}

// remove forgets the VM, which does not exist, and its runtime.
func (a *creation) remove() error {
	a.removed = true
	return errors.Join(a.unpair(a.rec), a.store.remove(a.rec.ID))
}

// renew makes the record one of another VM, for which Google was not asked yet. The runtime of
// the old one stays until the new one replaces it.
func (a *creation) renew(accelerators []string) error {
	a.removed = true
	old := a.rec.ID
	err := a.update(func(r *Record) {
		*r = Record{ID: NewID(), Name: r.Name, Backend: r.Backend, Accelerators: accelerators, Accelerator: accelerators[0], HighRAM: r.HighRAM, Step: Asked, KeyIDs: r.KeyIDs}
	})
	_ = os.Remove(a.store.ownPath(old))
	return err
}

// start starts a VM or continues its start.
func (m *Manager) start(ctx context.Context, r Request, say func(string)) (VM, error) {
	b, err := m.open(r.Backend)
	if err != nil {
		return VM{}, err
	}
	if err := checkName(r.Name); err != nil {
		return VM{}, err
	}
	if err := m.checkProgram(ctx, r.Name); err != nil {
		return VM{}, err
	}
	for {
		rec, err := m.claim(r, b, say)
		if err != nil {
			return VM{}, err
		}
		got, err := m.ascend(ctx, &creation{Manager: m, b: b, rec: rec, request: r, say: say})
		if !errors.Is(err, errEnded) {
			return got, err
		}
		say("Colab has ended the earlier VM; starting another one")
	}
}

// checkProgram makes sure that there is an executor, before a VM is asked for that could not
// be used. Colab's VMs have processors of this kind.
func (m *Manager) checkProgram(ctx context.Context, name string) error {
	all, err := m.store.read()
	if err == nil && find(all, name) != nil {
		return nil
	}
	_, err = m.cfg.Program(ctx, "amd64")
	return err
}

// errEnded means that the VM of a record was created and is gone.
var errEnded = errors.New("the VM was ended by Colab")

// ascend does the work while it owns the VM, unless somebody stops the VM.
func (m *Manager) ascend(ctx context.Context, a *creation) (VM, error) {
	if m.store.isOwned(a.rec.ID) {
		a.say("another process of the relay works on this VM; waiting for it")
	}
	release, err := m.store.own(ctx, a.rec.ID)
	if err != nil {
		return VM{}, err
	}
	defer release()
	if err := a.update(func(*Record) {}); err != nil { // what the other process has done
		return VM{}, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer m.watch(ctx, a.rec.ID, stop)()
	err = a.up(ctx)
	if err != nil && !a.removed && context.Cause(ctx) == ErrStopped {
		err = ErrStopped
	}
	if errors.Is(err, errEnded) {
		return VM{}, errors.Join(err, a.renew(a.request.Accelerators))
	}
	if err != nil {
		_ = a.update(func(r *Record) { r.Failure = shown(err) }) // it only explains
		return VM{}, a.failed(err)
	}
	return m.status(a.rec), nil
}

// failed says what the start's failure means for the VM.
func (a *creation) failed(err error) error {
	err = fmt.Errorf("start VM %q: %w", a.rec.Name, err)
	if a.removed || errors.Is(err, ErrStopped) || a.rec.Asked.IsZero() {
		return err
	}
	return fmt.Errorf("%w; VM %s may run, and use compute units, until it is stopped", err, a.rec.ID)
}

// watch stops ctx when somebody asks for the VM's end.
func (m *Manager) watch(ctx context.Context, id string, stop context.CancelCauseFunc) (end func()) {
	var watching sync.WaitGroup
	watching.Go(func() {
		_ = keep.Repeat(ctx, watchEvery, func() (bool, error) {
			all, err := m.store.read()
			if r := find(all, id); err == nil && (r == nil || r.Step == Stopping) {
				stop(ErrStopped)
			}
			return false, nil
		})
	})
	return func() { stop(nil); watching.Wait() }
}

// claim returns the record of that name, and makes one if there is none: from then on the VM
// is listed.
func (m *Manager) claim(r Request, b Backend, say func(string)) (rec Record, err error) {
	damage, err := m.store.change(func(all []Record) ([]Record, error) {
		if known := find(all, r.Name); known != nil {
			rec = *known
			return all, joins(rec, r, b.Name())
		}
		if len(all) >= MaxRecords {
			return nil, fmt.Errorf("%w: %d", ErrTooManyKept, len(all))
		}
		if err := errors.Join(m.nameIsFree(r.Name), m.mayReach(b, r.Way)); err != nil {
			return nil, err
		}
		rec = Record{ID: NewID(), Name: r.Name, Backend: b.Name(), Accelerators: r.Accelerators, Accelerator: r.Accelerators[0], HighRAM: r.HighRAM, Step: Asked}
		return append(all, rec), nil
	})
	if damage != nil {
		say(damage.Error())
		m.cfg.Log.Warn("the record of VMs was damaged", "err", damage)
	}
	return rec, err
}

// joins returns an error if the request is not for the VM of this record.
func joins(rec Record, r Request, backend string) error {
	switch {
	case rec.Step == Stopping:
		return fmt.Errorf("%w: %q", ErrStopped, rec.Name)
	case rec.Backend != backend:
		return fmt.Errorf("%w: %q was started with the backend %s", ErrOther, rec.Name, rec.Backend)
	case rec.HighRAM != r.HighRAM || rec.Step != Asked && !slices.Contains(r.Accelerators, rec.Accelerator):
		return fmt.Errorf("%w: %q has %s", ErrOther, rec.Name, Spec{rec.Accelerator, rec.HighRAM})
	case rec.Step == Asked && !slices.Equal(rec.Accelerators, r.Accelerators):
		return fmt.Errorf("%w: %q is being started as %s", ErrOther, rec.Name, Spec{strings.Join(rec.Accelerators, ","), rec.HighRAM})
	}
	return nil
}

// checkName returns an error for a name that no VM can have.
func checkName(name string) error {
	if idPattern().MatchString(name) {
		return fmt.Errorf("%w %q: it has the form of a VM's id", pairing.ErrBadName, name)
	}
	return pairing.CheckName(name)
}

// nameIsFree returns an error if a runtime of that name is paired with another executor.
func (m *Manager) nameIsFree(name string) error {
	switch _, err := m.cfg.Pairings.Get(name); {
	case errors.Is(err, pairing.ErrNotPaired):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: this computer is already paired with a runtime named %q", ErrNameTaken, name)
}

// update changes the record on disk and this copy of it.
func (a *creation) update(f func(*Record)) error {
	return a.store.update(a.rec.ID, func(r *Record) {
		f(r)
		a.rec = *r
	})
}

// up goes on from the step on record.
func (a *creation) up(ctx context.Context) error {
	if a.rec.Step == Asked {
		if err := a.askInTurn(ctx); err != nil {
			return err
		}
	}
	if err := a.awaitReady(ctx); err != nil {
		return err
	}
	if a.rec.Step == Paired {
		if done, err := a.check(ctx); done || err != nil {
			return err
		}
	}
	return a.launch(ctx)
}

// askInTurn asks for the accelerators in turn until there is a VM. A relay that was killed may
// have asked already: the id is the same, so it gets that VM. Google may refuse to create what
// exists, and not say that it exists, so the list is read first.
func (a *creation) askInTurn(ctx context.Context) error {
	remaining, absent := a.rec.Accelerators, true // absent: Google knows of no VM with this id
	if !a.rec.Asked.IsZero() {
		all, err := machines(ctx, a.b)
		if err != nil {
			return err
		}
		if _, there := machineWith(all, a.rec.ID); there {
			return a.update(func(r *Record) { r.Step = Created })
		}
		// An earlier start's request may still be on its way: then a refusal proves nothing.
		if absent = time.Since(a.rec.Asked) > a.limits.appear; !absent {
			remaining = remaining[max(0, slices.Index(remaining, a.rec.Accelerator)):]
		}
	}
	without := func(err error) error { // there is no VM
		if absent {
			err = errors.Join(err, a.remove())
		}
		return err
	}
	offered, err := a.b.Specs(ctx)
	if err != nil {
		return without(fmt.Errorf("look up what the account may start: %w", err))
	}
	var refused error // of all so far; it matches the last one
	for _, accelerator := range remaining {
		s := Spec{accelerator, a.rec.HighRAM}
		err := ErrNotEligible
		if offered == nil || slices.Contains(offered, s) {
			err = a.ask(ctx, accelerator, s)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrNoneFree), errors.Is(err, ErrNotEligible):
			if err = fmt.Errorf("%s: %w", s, err); refused != nil {
				err = fmt.Errorf("%v; %w", refused, err)
			}
			refused = err
		case errors.Is(err, ErrQuota), errors.Is(err, ErrDenied), errors.Is(err, ErrTooMany):
			return without(fmt.Errorf("%w; %s", err, a.runningText(ctx)))
		case errors.Is(err, ErrNotLoggedIn):
			return without(err)
		default: // the VM may exist
			return fmt.Errorf("ask for a VM with %s: %w", s, err)
		}
	}
	return without(fmt.Errorf("no VM could be started: %w", refused))
}

// ask asks for a VM.
func (a *creation) ask(ctx context.Context, accelerator string, s Spec) error {
	a.say("asking Google for a VM with " + s.String())
	if err := a.update(func(r *Record) { r.Accelerator, r.Asked = accelerator, time.Now().UTC() }); err != nil {
		return err
	}
	if err := a.b.Create(ctx, a.rec.ID, s); err != nil && !errors.Is(err, ErrExists) {
		return err
	}
	return a.update(func(r *Record) { r.Step = Created })
}

// runningText says what the account runs.
func (a *creation) runningText(ctx context.Context) string {
	all, err := machines(ctx, a.b)
	if err != nil {
		return "what runs is unknown: " + shown(err)
	}
	if len(all) == 0 {
		return "no VM of the account is visible"
	}
	var texts []string
	for _, m := range all[:min(len(all), 10)] {
		texts = append(texts, fmt.Sprintf("%s (%s)", shownID(m.ID), shownID(m.Spec.String())))
	}
	if len(all) > len(texts) {
		texts = append(texts, fmt.Sprintf("and %d more", len(all)-len(texts)))
	}
	return "these VMs run: " + strings.Join(texts, ", ")
}

// awaitReady waits until the VM can be used. Two lists in a row without the VM prove that it has
// ended: after one alone, a second VM would be started beside it if the service only omitted it.
func (a *creation) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.limits.ready, fmt.Errorf("the VM was created, but was not ready within %s", a.limits.ready))
	defer cancel()
	missed := 0
	return keep.Repeat(ctx, 2*time.Second, func() (bool, error) {
		all, err := machines(ctx, a.b)
		if err != nil {
			return false, err
		}
		found, there := machineWith(all, a.rec.ID)
		if missed++; there || time.Since(a.rec.Asked) <= a.limits.appear {
			missed = 0
		}
		if !found.Ready && missed == 2 {
			return false, errEnded
		}
		if !found.Ready {
			a.say("waiting until the VM is ready")
		}
		return found.Ready, nil
	})
}
