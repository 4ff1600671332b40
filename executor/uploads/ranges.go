package uploads

import (
	"cmp"
	"slices"

	"colabrelay/shared/contract"
)

// span is the bytes from from up to to, without to.
type span struct{ from, to int64 }

// ranges is a set of bytes of a file: sorted spans that neither touch nor overlap. The zero
// value is empty.
type ranges []span

// add is the union of r and s.
func (r ranges) add(s span) ranges {
	if s.from >= s.to {
		return r
	}
	first, last := r.touching(s)
	if first < last {
		s.from = min(s.from, r[first].from)
		s.to = max(s.to, r[last-1].to)
	}
	return slices.Replace(slices.Clone(r), first, last, s)
}

// missing is the part of s that is not in r.
func (r ranges) missing(s span) ranges {
	var out ranges
	first, last := r.touching(s)
	for _, have := range r[first:last] {
		if s.from < have.from {
			out = append(out, span{s.from, have.from})
		}
		s.from = max(s.from, have.to)
	}
	if s.from < s.to {
		out = append(out, s)
	}
	return out
}

// touching is the range of indexes of the spans that overlap or touch s.
func (r ranges) touching(s span) (int, int) {
	first, _ := slices.BinarySearchFunc(r, s.from, func(have span, at int64) int { return cmp.Compare(have.to, at) })
	last := first
	for last < len(r) && r[last].from <= s.to {
		last++
	}
	return first, last
}

func (r ranges) bytes() int64 {
	var n int64
	for _, s := range r {
		n += s.to - s.from
	}
	return n
}

// answer converts the first limit spans to ranges of the contract.
func (r ranges) answer(limit int) []contract.Range {
	out := make([]contract.Range, 0, min(len(r), limit))
	for _, s := range r[:min(len(r), limit)] {
		out = append(out, contract.Range{Offset: s.from, Length: s.to - s.from})
	}
	return out
}

// prefix is how many bytes from the first one on are in r, without a gap.
func (r ranges) prefix() int64 {
	if len(r) == 0 || r[0].from > 0 {
		return 0
	}
	return r[0].to
}
