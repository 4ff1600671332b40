package execution

import (
	"sync"
	"time"
)

const (
	// memoryAge is how old a look may be that tells a run's memory before or after.
	memoryAge = 5 * time.Millisecond
	// refusalAge is how old one may be that decides whether a run is accepted.
	refusalAge = time.Second
)

// memory looks at the machine's memory, not more often than needed: a look takes
// a thirtieth of a run of 1+1.
type memory struct {
	read func() (used, available uint64, err error)

	mu              sync.Mutex
	at              time.Time
	used, available uint64
	err             error
}

// look is at most age old.
func (m *memory) look(age time.Duration) (used, available uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); now.Sub(m.at) > age {
		m.used, m.available, m.err = m.read()
		m.at = now
	}
	return m.used, m.available, m.err
}

// inUse is what the machine uses now, 0 when that can't be told.
func (m *memory) inUse() uint64 {
	used, _, err := m.look(memoryAge)
	if err != nil {
		return 0
	}
	return used
}
