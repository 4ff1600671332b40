package harness

import (
	"bytes"
	"sync"
)

// Recording is what one connection carried.
type Recording struct {
	Up, Down []byte // to the target, and from it
}

// recorder keeps what connections carry, in memory.
type recorder struct {
	mu  sync.Mutex
	on  bool
	all []*Recording
}

// Record makes the proxy keep the bytes of all later connections.
func (w *Wire) Record() {
	w.recorder.mu.Lock()
	defer w.recorder.mu.Unlock()
	w.recorder.on = true
}

// Recorded returns what was recorded. It is complete after Close.
func (w *Wire) Recorded() (all []Recording) {
	w.recorder.mu.Lock()
	defer w.recorder.mu.Unlock()
	for _, r := range w.recorder.all {
		all = append(all, Recording{Up: bytes.Clone(r.Up), Down: bytes.Clone(r.Down)})
	}
	return all
}

// open returns what keeps the bytes of a new connection.
func (r *recorder) open() (up, down func([]byte)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.on {
		return func([]byte) {}, func([]byte) {}
	}
	one := &Recording{}
	r.all = append(r.all, one)
	keep := func(into *[]byte) func([]byte) {
		return func(p []byte) {
			r.mu.Lock()
			defer r.mu.Unlock()
			*into = append(*into, p...)
		}
	}
	return keep(&one.Up), keep(&one.Down)
}
