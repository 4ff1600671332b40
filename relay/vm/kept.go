package vm

import (
	"context"
	"time"
)

// Keeper returns the Keeper of the VMs that this computer started and paired. work asks a
// runtime's executor what it does, in one request; see KeeperConfig for resume.
func (m *Manager) Keeper(work func(ctx context.Context, runtime string) (Work, error), resume bool) *Keeper {
	return NewKeeper(KeeperConfig{VMs: m.kept, Work: work, Touch: m.touch, Resume: resume, Log: m.cfg.Log})
}

// kept returns the VMs on record whose name is still that of their executor.
func (m *Manager) kept() ([]Kept, error) {
	all, err := m.store.read()
	if err != nil {
		return nil, err
	}
	var kept []Kept
	for _, r := range all {
		if r.Step != Paired {
			continue
		}
		if p, err := m.cfg.Pairings.Get(r.Name); err == nil && r.pairedAs(p) {
			kept = append(kept, Kept{ID: r.ID, Backend: r.Backend, Runtime: r.Name, Since: r.Asked})
		}
	}
	return kept, nil
}

// touch sends one keep-alive, unless any relay on this computer has just sent one.
func (m *Manager) touch(ctx context.Context, v Kept) error {
	b, err := m.cfg.Open(v.Backend)
	if err != nil {
		return err
	}
	due := false
	err = m.store.update(v.ID, func(r *Record) {
		now := time.Now().UTC()
		if due = now.Sub(r.Touched).Abs() >= keepApart; due {
			r.Touched = now
		}
	})
	if err != nil || !due {
		return err
	}
	return b.Touch(ctx, v.ID)
}
