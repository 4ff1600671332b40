package op

import (
	"slices"
	"sync"
)

// maxRecent bounds what a relay remembers of one kind. Beyond it, the oldest is forgotten.
const maxRecent = 1000

// recent remembers values by their keys. The zero value is ready to use.
type recent[K comparable, V any] struct {
	mu  sync.Mutex
	all []remembered[K, V] // oldest first
}

type remembered[K comparable, V any] struct {
	key   K
	value V
}

// add remembers a value beside those that the key has.
func (r *recent[K, V]) add(key K, value V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, remembered[K, V]{key, value})
	r.all = slices.Delete(r.all, 0, max(0, len(r.all)-maxRecent))
}

// put remembers a value in place of the one that the key has.
func (r *recent[K, V]) put(key K, value V) {
	r.take(key)
	r.add(key, value)
}

// get returns the oldest value of a key.
func (r *recent[K, V]) get(key K) (value V, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.index(key); at >= 0 {
		return r.all[at].value, true
	}
	return value, false
}

// take returns the oldest value of a key and forgets it.
func (r *recent[K, V]) take(key K) (value V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.index(key); at >= 0 {
		value = r.all[at].value
		r.all = slices.Delete(r.all, at, at+1)
	}
	return value
}

func (r *recent[K, V]) index(key K) int {
	return slices.IndexFunc(r.all, func(each remembered[K, V]) bool { return each.key == key })
}
