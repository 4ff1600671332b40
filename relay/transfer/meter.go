package transfer

import "sync"

// meter adds up what all files of a job did and reports it.
type meter struct {
	report func(Progress)

	mu    sync.Mutex
	now   Progress
	moved int64
}

// plan sets what is to be done in all.
func (m *meter) plan(files int, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Files, m.now.Total = files, bytes
}

// move counts n bytes of a file that are there now, however they came to be; n is
// negative for what turned out to be of no use.
func (m *meter) add(name string, stage Stage, n int64) {
	m.update(func() { m.now.Name, m.now.Stage, m.now.Done = name, stage, m.now.Done+n })
}

// checker gives what to call with each piece of a file that was hashed.
func (m *meter) checker(name string, stage Stage) func(n int64) {
	var sum int64
	return func(n int64) {
		sum += n
		m.update(func() { m.now.Name, m.now.Stage, m.now.Hashed = name, stage, sum })
	}
}

// finish counts a file that is over.
func (m *meter) finish(name string) { m.update(func() { m.now.Name, m.now.File = name, m.now.File+1 }) }

// carried counts payload bytes that crossed the wire.
func (m *meter) addMoved(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.moved += n
}

func (m *meter) movedBytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.moved
}

func (m *meter) update(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	if m.report != nil {
		m.report(m.now)
	}
}
