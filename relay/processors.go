package main

import (
	"runtime"
	"sync"
)

// processors limits Go to one processor, except while a call moves much data. On one, a
// goroutine that hands work to another needs no other thread. Waking a thread takes longer
// than the relay's own part of a quick call.
type processors struct {
	all int // how many there are

	mu    sync.Mutex
	users int
}

func oneProcessor() *processors { return &processors{all: runtime.GOMAXPROCS(1)} }

// useAll lets Go use all processors until done is called.
func (p *processors) useAll() (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users++; p.users == 1 {
		runtime.GOMAXPROCS(p.all)
	}
	return p.done
}

func (p *processors) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users == 0 {
		runtime.GOMAXPROCS(1)
	}
}
