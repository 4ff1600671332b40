package vm

import (
	"context"
	"errors"
	"io"
	"time"
)

// Hurry makes the Manager wait for less; for the answer of an executor that was paired before,
// at most 2 s.
func (m *Manager) Hurry(appear, answer time.Duration) {
	m.limits.appear, m.limits.proxy, m.limits.tunnel, m.limits.check = appear, answer, answer, min(answer, 2*time.Second)
}

// ForgetResults makes the results of starts useless as soon as they end.
func (m *Manager) ForgetResults() { m.limits.result = 0 }

// FillDisk makes every change of the record fail.
func (m *Manager) FillDisk() {
	m.store.writeFile = func(string, io.Reader) error { return errors.New("no space left on device") }
}

// Forms of what is on disk.
var (
	DecodeRecords = decodeRecords
	EncodeRecords = encodeRecords
	DigestOf      = digestOf
)

// Kept returns the VMs that a Keeper may keep alive.
func (m *Manager) Kept() ([]Kept, error) { return m.kept() }

// Touch is what a Keeper calls.
func (m *Manager) Touch(ctx context.Context, v Kept) error { return m.touch(ctx, v) }
