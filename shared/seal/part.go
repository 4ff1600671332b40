package seal

import "io"

// PartSize returns how many bytes NewPartSealer makes of n bytes, n being at most 1<<62.
func PartSize(n int64) int64 { return Size(n + 1) }

// NewPartSealer is NewSealer for a part of a file: a leading byte says that the text is not
// compressed.
func NewPartSealer(key Key, src io.Reader) io.Reader {
	return newPartSealer(newSalt(), key, src)
}

func newPartSealer(salt [saltSize]byte, key Key, src io.Reader) *sealer {
	s := newSealer(salt, key, src)
	s.held, s.holding = uncompressed, true
	return s
}

// NewPartOpener is NewOpener for what NewPartSealer sealed.
func NewPartOpener(key Key, src io.Reader) io.Reader {
	o := newOpener(key, src)
	o.led = true
	return o
}
