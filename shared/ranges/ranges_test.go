package ranges

import (
	"math/rand/v2"
	"slices"
	"testing"

	"colabrelay/shared/contract"
)

const size = 64

// plain is a simple, slow set of the bytes of a file of size bytes.
type plain [size]bool

// fill sets the bytes of r to in.
func (p *plain) fill(r contract.Range, in bool) {
	for i := r.Offset; i < r.End(); i++ {
		p[i] = in
	}
}

func (p *plain) set() Set {
	out := Set{}
	for i := int64(0); i < size; i++ {
		from := i
		for i < size && p[i] {
			i++
		}
		if i > from {
			out = append(out, contract.Range{Offset: from, Length: i - from})
		}
	}
	return out
}

func randomRange(r *rand.Rand) contract.Range {
	at := r.Int64N(size)
	return contract.Range{Offset: at, Length: r.Int64N(min(20, size-at) + 1)}
}

// Random sets are compared with those on a plain list of bytes.
func TestASetEqualsAListOfBytes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 3))
	for range 300 {
		var s Set
		var all plain
		for range 12 {
			r := randomRange(rnd)
			before := slices.Clone(s)
			next := s.Add(r)
			if !slices.Equal(s, before) {
				t.Fatalf("adding %v changed %v to %v", r, before, s)
			}
			s = next
			all.fill(r, true)
			check(t, s, all, randomRange(rnd))
		}
	}
}

// check compares s with all, and what it has of r and lacks.
func check(t *testing.T, s Set, all plain, r contract.Range) {
	t.Helper()
	if !slices.Equal(s, all.set()) || !s.Valid(size) {
		t.Fatalf("%v, want %v", s, all.set())
	}
	var inside, outside plain
	for i := r.Offset; i < r.End(); i++ {
		inside[i], outside[i] = all[i], !all[i]
	}
	missing, within := s.Missing(r), s.Within(r)
	if missing == nil || !slices.Equal(missing, outside.set()) || !slices.Equal(within, inside.set()) {
		t.Fatalf("of %v, %v has %v and lacks %v", r, s, within, missing)
	}
	if missing.Total()+within.Total() != r.Length {
		t.Fatalf("%v and %v are not %v", missing, within, r)
	}
	checkEnds(t, s, all)
}

func checkEnds(t *testing.T, s Set, all plain) {
	t.Helper()
	prefix := slices.Index(append(all[:], false), false)
	end := size - max(0, slices.Index(reversed(all), true))
	if len(s) == 0 {
		end = 0
	}
	if s.Prefix() != int64(prefix) || s.End() != int64(end) {
		t.Fatalf("%v begins with %d bytes and ends at %d, want %d and %d", s, s.Prefix(), s.End(), prefix, end)
	}
	if len(s) == 0 {
		return
	}
	first, rest := s.Front(5)
	if first.Length != min(5, s[0].Length) || first.Offset != s[0].Offset {
		t.Fatalf("the front of %v is %v", s, first)
	}
	all.fill(first, false)
	if !slices.Equal(rest, all.set()) {
		t.Fatalf("%v without %v is %v", s, first, rest)
	}
}

func reversed(p plain) []bool {
	slices.Reverse(p[:])
	return p[:]
}

func TestImpossibleRangesAreInvalid(t *testing.T) {
	for name, s := range map[string]Set{
		"empty range":  {{Offset: 1, Length: 0}},
		"negative":     {{Offset: -1, Length: 5}},
		"past the end": {{Offset: 90, Length: 20}},
		"overflow":     {{Offset: 1 << 62, Length: 1 << 62}},
		"out of order": {{Offset: 50, Length: 5}, {Offset: 10, Length: 5}},
		"overlapping":  {{Offset: 10, Length: 10}, {Offset: 15, Length: 10}},
		"not merged":   {{Offset: 10, Length: 10}, {Offset: 20, Length: 10}},
	} {
		if s.Valid(100) {
			t.Errorf("%s: %v count as ranges of a file of 100 bytes", name, s)
		}
	}
	if good := (Set{{Offset: 0, Length: 10}, {Offset: 99, Length: 1}}); !good.Valid(100) || !Set(nil).Valid(0) {
		t.Error("good ranges are refused")
	}
}
