package main

import (
	"testing"
	"time"
)

func TestQuantiles(t *testing.T) {
	var s samples
	for i := range 100 {
		s = append(s, time.Duration(100-i))
	}
	if s.median() != 51 || s.quantile(0.99) != 100 || s.quantile(1) != 100 || s.quantile(0) != 1 {
		t.Errorf("median %d, p99 %d, largest %d, smallest %d", s.median(), s.quantile(0.99), s.quantile(1), s.quantile(0))
	}
}

func TestAgesOfStamps(t *testing.T) {
	now := time.UnixMilli(5_000)
	var s samples
	if err := s.add(now, "4.5\n4.75\n"); err != nil || len(s) != 2 || s[0] != 500*time.Millisecond || s[1] != 250*time.Millisecond {
		t.Errorf("ages %v, %v", s, err)
	}
	if err := s.add(now, "4.5\nno stamp\n"); err == nil {
		t.Error("a line that is no stamp was accepted")
	}
}
