package transfer

import (
	"sync"
	"sync/atomic"
)

// meter adds up the progress of all files of a job and reports it.
type meter struct {
	report func(Progress)
	moved  atomic.Int64 // payload bytes that were sent or received

	mu  sync.Mutex
	now Progress
}

func (m *meter) plan(files int, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Files, m.now.Total = files, bytes
}

// add counts n more bytes of a file at its destination, whether this call moved them or
// not. n is negative for bytes that turned out to be wrong.
func (m *meter) add(name string, stage Stage, n int64) {
	m.update(func() { m.now.Name, m.now.Stage, m.now.Done = name, stage, m.now.Done+n })
}

// leave counts bytes that leave this computer. Nobody has confirmed that they arrived.
func (m *meter) leave(n int) { m.update(func() { m.now.Left += int64(n) }) }

// checker returns a function to call with the size of each piece of a file that was hashed.
func (m *meter) checker(name string, stage Stage) func(n int64) {
	var sum int64
	return func(n int64) {
		sum += n
		m.hashed(name, stage, sum)
	}
}

// hashed reports that n bytes of a file were hashed.
func (m *meter) hashed(name string, stage Stage, n int64) {
	m.update(func() { m.now.Name, m.now.Stage, m.now.Hashed = name, stage, n })
}

// finish counts a file that succeeded or failed.
func (m *meter) finish(name string) { m.update(func() { m.now.Name, m.now.File = name, m.now.File+1 }) }

func (m *meter) update(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	if m.report != nil {
		m.report(m.now)
	}
}
