package execution

import "hash/maphash"

// table finds places in a file by a key. A slot holds 32 bits of the key's hash and
// the place, so that 150,000 keys take 2 MiB; the record itself tells whether it is
// the key's.
type table struct {
	seed  maphash.Seed
	slots []uint64 // 0 is free
	used  int
}

func newTable() table { return table{seed: maphash.MakeSeed(), slots: make([]uint64, 64)} }

func (t *table) put(key string, position int64) {
	if t.used++; t.used > len(t.slots)*7/8 {
		old := t.slots
		t.slots = make([]uint64, 2*len(old))
		for _, slot := range old {
			if slot != 0 {
				t.set(slot)
			}
		}
	}
	t.set(t.hash(key)<<32 | uint64(position+1))
}

func (t *table) set(slot uint64) {
	at := slot >> 32 % uint64(len(t.slots))
	for t.slots[at] != 0 {
		at = (at + 1) % uint64(len(t.slots))
	}
	t.slots[at] = slot
}

func (t *table) hash(key string) uint64 { return maphash.String(t.seed, key) >> 32 }

// places yields where the key's record may be.
func (t *table) places(key string) func(yield func(int64) bool) {
	hash := t.hash(key)
	return func(yield func(int64) bool) {
		for at := hash % uint64(len(t.slots)); t.slots[at] != 0; at = (at + 1) % uint64(len(t.slots)) {
			slot := t.slots[at]
			if slot>>32 == hash && !yield(int64(slot&(1<<32-1))-1) {
				return
			}
		}
	}
}
