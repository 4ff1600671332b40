package transfer

import "colabrelay/shared/contract"

// ranges is a set of bytes of a file. Its pieces are in order, not adjacent and not empty.
type ranges []contract.Range

func end(r contract.Range) int64 { return r.Offset + r.Length }

// whole returns all bytes of a file.
func whole(size int64) ranges {
	if size <= 0 {
		return nil
	}
	return ranges{{Offset: 0, Length: size}}
}

// add returns r with piece added.
func (r ranges) add(piece contract.Range) ranges {
	if piece.Length <= 0 {
		return r
	}
	from, to := piece.Offset, end(piece)
	var out ranges
	for i, old := range r {
		switch {
		case end(old) < from:
			out = append(out, old)
		case old.Offset > to:
			return append(append(out, contract.Range{Offset: from, Length: to - from}), r[i:]...)
		default:
			from, to = min(from, old.Offset), max(to, end(old))
		}
	}
	return append(out, contract.Range{Offset: from, Length: to - from})
}

// without returns r with piece removed.
func (r ranges) without(piece contract.Range) ranges {
	var out ranges
	for _, old := range r {
		before := contract.Range{Offset: old.Offset, Length: min(end(old), piece.Offset) - old.Offset}
		from := max(old.Offset, end(piece))
		after := contract.Range{Offset: from, Length: end(old) - from}
		if piece.Length <= 0 {
			before, after = old, contract.Range{}
		}
		for _, rest := range []contract.Range{before, after} {
			if rest.Length > 0 {
				out = append(out, rest)
			}
		}
	}
	return out
}

// minus returns the bytes of r that are not in other.
func (r ranges) minus(other ranges) ranges {
	for _, piece := range other {
		r = r.without(piece)
	}
	return r
}

// within returns the bytes of r that are in piece.
func (r ranges) within(piece contract.Range) ranges {
	return ranges{piece}.minus(ranges{piece}.minus(r))
}

func (r ranges) total() int64 {
	var sum int64
	for _, piece := range r {
		sum += piece.Length
	}
	return sum
}

// valid reports whether r keeps the rules of its type, for a file of size bytes.
func (r ranges) valid(size int64) bool {
	last := int64(-1)
	for _, piece := range r {
		if piece.Offset <= last || piece.Offset < 0 || piece.Length <= 0 || piece.Length > size || piece.Offset > size-piece.Length {
			return false
		}
		last = end(piece)
	}
	return true
}

// front splits off the first bytes of r, at most limit of them, from the rest.
func (r ranges) front(limit int64) (contract.Range, ranges) {
	first := r[0]
	first.Length = min(first.Length, limit)
	return first, r.without(first)
}

func (r ranges) last() int64 {
	if len(r) == 0 {
		return 0
	}
	return end(r[len(r)-1])
}
