package journal

import "hash/maphash"

// index finds the places of records in a file by a key. A slot holds 32 bits of the
// key's hash and the place, so that 150,000 keys take 2 MiB. Two keys may share a
// hash: compare the record itself.
type index struct {
	seed  maphash.Seed
	slots []uint64 // 0 is a free one
	used  int
}

func newIndex() index { return index{seed: maphash.MakeSeed(), slots: make([]uint64, 64)} }

func (x *index) put(key string, position int64) {
	if x.used++; x.used > len(x.slots)*7/8 {
		old := x.slots
		x.slots = make([]uint64, 2*len(old))
		for _, slot := range old {
			if slot != 0 {
				x.set(slot)
			}
		}
	}
	x.set(x.hash(key)<<32 | uint64(position+1))
}

func (x *index) set(slot uint64) {
	at := slot >> 32 % uint64(len(x.slots))
	for x.slots[at] != 0 {
		at = (at + 1) % uint64(len(x.slots))
	}
	x.slots[at] = slot
}

func (x *index) hash(key string) uint64 { return maphash.String(x.seed, key) >> 32 }

// of yields the places where the key's record may be.
func (x *index) of(key string) func(yield func(int64) bool) {
	hash := x.hash(key)
	return func(yield func(int64) bool) {
		for at := hash % uint64(len(x.slots)); x.slots[at] != 0; at = (at + 1) % uint64(len(x.slots)) {
			slot := x.slots[at]
			if slot>>32 == hash && !yield(int64(slot&(1<<32-1))-1) {
				return
			}
		}
	}
}
