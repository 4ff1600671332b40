package seal

import (
	"io"
	"sync"
)

// bufferSize is room for the header and one record.
const bufferSize = headerSize + recordSize

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// stream makes a reader of what a sealer or an opener makes record by record.
type stream struct {
	// next makes the next bytes, at least one, in buf, which has room for a record. It is
	// not called again after an error, and returns bytes or an error, never both.
	next func(buf []byte) ([]byte, error)

	buf  *[bufferSize]byte // from the pool, while rest lies in it
	rest []byte            // made, but not read yet
	err  error
}

// Read implements io.Reader. A p of 64 KiB or more is filled without a copy, one record at
// a time.
func (s *stream) Read(p []byte) (int, error) {
	if len(p) >= recordSize && len(s.rest) == 0 && s.err == nil {
		s.free()
		made, err := s.next(p)
		s.err = err
		return len(made), err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if !s.fill() {
		return 0, s.err
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// WriteTo implements io.WriterTo: each record is one write.
func (s *stream) WriteTo(w io.Writer) (int64, error) {
	var written int64
	for s.fill() {
		n, err := w.Write(s.rest)
		written += int64(n)
		s.rest = s.rest[n:]
		if err == nil && len(s.rest) > 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			return written, err
		}
	}
	if s.err == io.EOF {
		return written, nil
	}
	return written, s.err
}

// fill reports whether there are bytes to read, after making more if there were none.
func (s *stream) fill() bool {
	if len(s.rest) == 0 && s.err == nil {
		if s.buf == nil {
			s.buf = buffers.Get().(*[bufferSize]byte)
		}
		s.rest, s.err = s.next(s.buf[:])
	}
	if len(s.rest) == 0 {
		s.free()
	}
	return len(s.rest) > 0
}

func (s *stream) free() {
	if s.buf != nil {
		buffers.Put(s.buf)
		s.buf = nil
	}
}

// source fills whole buffers from a reader, and keeps the reader's error as it is. (Of
// io.ReadFull, a caller cannot tell the end of the bytes from a cut connection: both are
// io.ErrUnexpectedEOF.)
type source struct {
	r   io.Reader
	err error
}

func (s *source) fill(p []byte) int {
	n := 0
	for n < len(p) && s.err == nil {
		var m int
		m, s.err = s.r.Read(p[n:])
		n += m
	}
	return n
}

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
