package api

import (
	"encoding/binary"
	"testing"

	"colabrelay/shared/auth"
)

func caller(n int) (c auth.Caller) {
	binary.BigEndian.PutUint64(c[:], uint64(n)+1)
	return c
}

func TestSlotsForLongPollsAreLimitedAndShared(t *testing.T) {
	p := newSlots(64)
	var done []func()
	for range 64 {
		d, ok := p.take(caller(0))
		if !ok {
			t.Fatal("refused below the bound")
		}
		done = append(done, d)
	}
	if _, ok := p.take(caller(0)); ok {
		t.Error("one caller gets a 65th place")
	}
	for n := range 64 {
		d, ok := p.take(caller(1 + n))
		if !ok {
			t.Fatalf("caller %d gets none", n)
		}
		done = append(done, d)
	}
	if _, ok := p.take(caller(100)); ok {
		t.Error("a 129th place is given")
	}
	for _, d := range done {
		d()
	}
	if p.inUse() != 0 || len(p.perCaller) != 0 {
		t.Errorf("%d places are taken by %d when all are given back", p.inUse(), len(p.perCaller))
	}
}

// inUse is how many slots are taken.
func (p *slots) inUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}
