package vm

import (
	"errors"
	"time"
)

// Hurry makes the Manager wait so long for a VM to appear in lists and for an executor's answer.
func (m *Manager) Hurry(appear, answer time.Duration) {
	m.limits.appear, m.limits.proxy, m.limits.tunnel, m.limits.check = appear, answer, answer, answer
}

// FillDisk makes every change of the record fail.
func (m *Manager) FillDisk() {
	m.store.file.Write = func(string, []byte) error { return errors.New("no space left on device") }
}

// DigestOf returns the digest of a program.
var DigestOf = digestOf
