package execution

import (
	"sync"
	"time"
)

// memoryAge is how old a look at the machine's memory may be: a run of 1+1 asks
// three times within it, and a look costs a thirtieth of such a run.
const memoryAge = 5 * time.Millisecond

// memory looks at the machine's memory, not more often than needed.
type memory struct {
	read func() (used, available uint64, err error)

	mu              sync.Mutex
	at              time.Time
	used, available uint64
	err             error
}

func (m *memory) look() (used, available uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); now.Sub(m.at) > memoryAge {
		m.used, m.available, m.err = m.read()
		m.at = now
	}
	return m.used, m.available, m.err
}

// inUse is what the machine uses now, 0 when that can't be told.
func (m *memory) inUse() uint64 {
	used, _, err := m.look()
	if err != nil {
		return 0
	}
	return used
}
