package vm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// askInTurn asks for the accelerators in turn until there is a VM. A relay that was killed may
// have asked already: the id is the same, so it gets that VM.
func (a *creation) askInTurn(ctx context.Context) error {
	if there, err := a.askedBefore(ctx); there || err != nil {
		return err
	}
	offered, err := a.b.Specs(ctx)
	if err != nil {
		return a.without(fmt.Errorf("look up what the account may start: %w", err))
	}
	var refused []string
	var last error
	for _, accelerator := range a.remaining() {
		s := spec(accelerator, a.rec.HighRAM)
		err := ErrNotEligible
		if offered == nil || slices.Contains(offered, s) {
			err = a.ask(ctx, accelerator, s)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrNoneFree), errors.Is(err, ErrNotEligible):
			refused, last = append(refused, fmt.Sprintf("%s: %s", s, shown(err))), err
		case errors.Is(err, ErrQuota), errors.Is(err, ErrDenied), errors.Is(err, ErrTooMany):
			return a.without(fmt.Errorf("%w; %s", err, a.runningText(ctx)))
		case errors.Is(err, ErrNotLoggedIn):
			return a.without(err)
		default: // the VM may exist
			return fmt.Errorf("ask for a VM with %s: %w", s, err)
		}
	}
	return a.without(&refusals{refused, last})
}

// refusals is the error of a start whose every accelerator was refused. It matches the last one.
type refusals struct {
	all  []string
	last error
}

func (r *refusals) Error() string {
	return "no VM could be started: " + strings.Join(r.all, "; ")
}

func (r *refusals) Unwrap() error { return r.last }

// askedBefore reports whether the VM exists because an earlier start asked for it. Google may
// refuse to create what exists, and not say that it exists.
func (a *creation) askedBefore(ctx context.Context) (there bool, err error) {
	if a.rec.Asked.IsZero() {
		a.absent = true
		return false, nil
	}
	all, err := machines(ctx, a.b)
	if err != nil {
		return false, err
	}
	if _, there = machineWith(all, a.rec.ID); there {
		return true, a.update(func(r *Record) { r.Step = Created })
	}
	a.absent = time.Since(a.rec.Asked) > a.limits.appear
	return false, nil
}

// without returns err, after which there is no VM, unless an earlier start's request is still
// on its way: then the record stays.
func (a *creation) without(err error) error {
	if a.absent {
		err = errors.Join(err, a.remove())
	}
	return err
}

// remaining are the accelerators to try: all of them, or those that an earlier start has left.
func (a *creation) remaining() []string {
	if a.absent {
		return a.rec.Accelerators
	}
	return a.rec.Accelerators[max(0, slices.Index(a.rec.Accelerators, a.rec.Accelerator)):]
}

// ask asks for a VM.
func (a *creation) ask(ctx context.Context, accelerator string, s Spec) error {
	a.say("asking Google for a VM with " + s.String())
	if err := a.update(func(r *Record) { r.Accelerator, r.Asked = accelerator, time.Now().UTC() }); err != nil {
		return err
	}
	if _, err := a.b.Create(ctx, a.rec.ID, s); err != nil && !errors.Is(err, ErrExists) {
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
		texts = append(texts, fmt.Sprintf("%s (%s)", shownID(m.ID), shownSpec(m.Spec)))
	}
	if len(all) > len(texts) {
		texts = append(texts, fmt.Sprintf("and %d more", len(all)-len(texts)))
	}
	return "these VMs run: " + strings.Join(texts, ", ")
}
