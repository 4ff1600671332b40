package execution

import (
	"sync"
	"time"
)

const (
	// reportAge is how old a measurement of memory before or after a run may be.
	reportAge = 5 * time.Millisecond
	// acceptAge is how old a measurement that decides whether to accept a run may be.
	acceptAge = time.Second
)

// memoryGauge measures the machine's memory, but not more often than needed: one
// measurement takes a thirtieth of a run of 1+1.
type memoryGauge struct {
	read func() (used, available uint64, err error)

	mu              sync.Mutex
	at              time.Time
	used, available uint64
	err             error
}

// usage returns a measurement that is at most maxAge old.
func (m *memoryGauge) usage(maxAge time.Duration) (used, available uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); now.Sub(m.at) > maxAge {
		m.used, m.available, m.err = m.read()
		m.at = now
	}
	return m.used, m.available, m.err
}

// inUse returns the memory in use now, 0 if it can't be measured.
func (m *memoryGauge) inUse() uint64 {
	used, _, err := m.usage(reportAge)
	if err != nil {
		return 0
	}
	return used
}
