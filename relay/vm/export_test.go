package vm

import (
	"context"
	"time"
)

// Hurry makes the Manager wait for less.
func (m *Manager) Hurry(appear, answer time.Duration) {
	m.limits.appear, m.limits.proxy, m.limits.tunnel, m.limits.check = appear, answer, answer, answer
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
