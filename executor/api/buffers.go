package api

import (
	"bytes"
	"sync"
)

// Sizes of the buffers that are reused. Smaller ones are cheap to allocate, and no body of
// the contract needs a larger one.
const (
	minPooled = 64 << 10
	maxPooled = 9 << 20
)

// buffers pools the memory of large request and answer bodies. Without it, a transfer of
// gigabytes allocates gigabytes, and the program's size depends on how often garbage is
// collected.
var buffers sync.Pool

// newBuffer returns an empty buffer with space for size bytes, and for ReadFrom to detect
// their end. recycle returns it to the pool.
func newBuffer(size int) *bytes.Buffer {
	size += bytes.MinRead
	if size >= minPooled {
		if kept, ok := buffers.Get().(*bytes.Buffer); ok && kept.Cap() >= size {
			kept.Reset()
			return kept
		}
	}
	return bytes.NewBuffer(make([]byte, 0, size))
}

// recycle returns b to the pool. Its bytes must no longer be used.
func recycle(b *bytes.Buffer) {
	if b != nil && b.Cap() >= minPooled && b.Cap() <= maxPooled {
		buffers.Put(b)
	}
}
