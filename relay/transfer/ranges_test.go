package transfer

import (
	"math/rand/v2"
	"testing"

	"colabrelay/shared/contract"
)

// Random additions and removals are compared with those on a plain list of bytes.
func TestRangesEqualASetOfBytes(t *testing.T) {
	const size = 64
	r := rand.New(rand.NewPCG(3, 3))
	for range 300 {
		var set ranges
		var plain [size]bool
		for range 30 {
			piece := contract.Range{Offset: r.Int64N(size)}
			piece.Length = r.Int64N(size - piece.Offset + 1)
			in := r.IntN(2) == 0
			if in {
				set = set.add(piece)
			} else {
				set = set.without(piece)
			}
			for i := piece.Offset; i < end(piece); i++ {
				plain[i] = in
			}
			checkRanges(t, set, plain[:])
		}
	}
}

func checkRanges(t *testing.T, set ranges, plain []bool) {
	t.Helper()
	size := int64(len(plain))
	var got [64]bool
	for _, piece := range set {
		for i := piece.Offset; i < end(piece); i++ {
			got[i] = true
		}
	}
	if !set.valid(size) || got != [64]bool(plain) {
		t.Fatalf("%v is not %v", set, plain)
	}
	rest := whole(size).minus(set)
	if !rest.valid(size) || rest.total()+set.total() != size || len(set.minus(whole(size))) != 0 {
		t.Fatalf("%v without %v is %v", whole(size), set, rest)
	}
	half := contract.Range{Offset: 16, Length: 32}
	if in := set.within(half); !in.valid(size) || in.total()+set.without(half).total() != set.total() {
		t.Fatalf("%v within %v is %v", set, half, in)
	}
	if len(set) > 0 {
		first, others := set.front(5)
		if first.Length > 5 || first.Offset != set[0].Offset || first.Length+others.total() != set.total() {
			t.Fatalf("front of %v is %v and %v", set, first, others)
		}
	}
}

func TestImpossibleRangesAreInvalid(t *testing.T) {
	for name, r := range map[string]ranges{
		"empty piece":  {{Offset: 1, Length: 0}},
		"negative":     {{Offset: -1, Length: 5}},
		"past the end": {{Offset: 90, Length: 20}},
		"overflow":     {{Offset: 1 << 62, Length: 1 << 62}},
		"out of order": {{Offset: 50, Length: 5}, {Offset: 10, Length: 5}},
		"overlapping":  {{Offset: 10, Length: 10}, {Offset: 15, Length: 10}},
		"not merged":   {{Offset: 10, Length: 10}, {Offset: 20, Length: 10}},
	} {
		if r.valid(100) {
			t.Errorf("%s: %v count as ranges of a file of 100 bytes", name, r)
		}
	}
	if good := (ranges{{Offset: 0, Length: 10}, {Offset: 99, Length: 1}}); !good.valid(100) || !ranges(nil).valid(0) {
		t.Error("good ranges are refused")
	}
}
