package main

import (
	"runtime"
	"testing"
)

func TestAllProcessorsAreUsedWhileAnyCallNeedsThem(t *testing.T) {
	before := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(before)
	p := oneProcessor()
	want := func(n int) {
		t.Helper()
		if got := runtime.GOMAXPROCS(0); got != n {
			t.Errorf("Go uses %d processors, want %d", got, n)
		}
	}
	want(1)
	first, second := p.useAll(), p.useAll()
	want(2)
	first()
	want(2)
	second()
	want(1)
}
