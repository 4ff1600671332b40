package api

import (
	"bytes"
	"sync"
)

// Bounds of what is kept for the next body: smaller ones cost nothing to make, and
// nothing of the contract is bigger.
const (
	minPooled = 64 << 10
	maxPooled = 9 << 20
)

// buffers keeps the memory of big bodies, either way. Without it a transfer of
// gigabytes in parts of megabytes leaves as much to collect, and the program's size
// follows how often that is done.
var buffers sync.Pool

// newBuffer is an empty buffer with room for size bytes, and for ReadFrom to notice
// their end; recycle takes it back.
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

// recycle keeps b for newBuffer. Nothing may hold on to its bytes.
func recycle(b *bytes.Buffer) {
	if b != nil && b.Cap() >= minPooled && b.Cap() <= maxPooled {
		buffers.Put(b)
	}
}
