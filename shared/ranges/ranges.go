// Package ranges keeps sets of bytes of a file: those of a transfer that have arrived, or
// that are missing. It knows nothing of files and transfers.
package ranges

import (
	"cmp"
	"slices"

	"colabrelay/shared/contract"
)

// Set is a set of bytes of a file: ranges in order that are not empty and neither touch nor
// overlap. Nil is the empty set. Its methods do not change it.
type Set []contract.Range

// Add returns s with the bytes of r. An r without bytes changes nothing.
func (s Set) Add(r contract.Range) Set {
	if r.Length <= 0 {
		return s
	}
	first, last := s.touching(r)
	if first < last {
		from, to := min(r.Offset, s[first].Offset), max(r.End(), s[last-1].End())
		r = contract.Range{Offset: from, Length: to - from}
	}
	return slices.Replace(slices.Clone(s), first, last, r)
}

// Missing returns the bytes of r that s does not have. It is not nil, because in JSON it has
// to be a list.
func (s Set) Missing(r contract.Range) Set {
	missing := Set{}
	first, last := s.touching(r)
	for _, have := range s[first:last] {
		if gap := have.Offset - r.Offset; gap > 0 {
			missing = append(missing, contract.Range{Offset: r.Offset, Length: gap})
		}
		r = r.After(max(0, have.End()-r.Offset))
	}
	if r.Length > 0 {
		missing = append(missing, r)
	}
	return missing
}

// Within returns the bytes of r that s has.
func (s Set) Within(r contract.Range) Set { return s.Missing(r).Missing(r) }

// touching returns the indexes of the ranges that overlap or touch r: from first up to last.
func (s Set) touching(r contract.Range) (first, last int) {
	first, _ = slices.BinarySearchFunc(s, r.Offset, func(have contract.Range, at int64) int { return cmp.Compare(have.End(), at) })
	last = first
	for last < len(s) && s[last].Offset <= r.End() {
		last++
	}
	return first, last
}

// Total returns how many bytes s has.
func (s Set) Total() int64 {
	var sum int64
	for _, r := range s {
		sum += r.Length
	}
	return sum
}

// Prefix returns how many bytes s has from the file's first one on, without a gap.
func (s Set) Prefix() int64 {
	if len(s) == 0 || s[0].Offset > 0 {
		return 0
	}
	return s[0].Length
}

// End returns the offset after the last byte of s, or 0.
func (s Set) End() int64 {
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1].End()
}

// Front splits s, which must not be empty: into its first range, shortened to at most limit
// bytes, and the rest.
func (s Set) Front(limit int64) (contract.Range, Set) {
	first := s[0]
	first.Length = min(first.Length, limit)
	if rest := s[0].After(first.Length); rest.Length > 0 {
		return first, append(Set{rest}, s[1:]...)
	}
	return first, s[1:]
}

// Valid reports whether s, which came from outside, is a set of bytes of a file of size bytes.
func (s Set) Valid(size int64) bool {
	last := int64(-1)
	for _, r := range s {
		if r.Offset <= last || r.Length <= 0 || r.Length > size || r.Offset > size-r.Length {
			return false
		}
		last = r.End()
	}
	return true
}
