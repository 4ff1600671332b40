package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"sync"
)

const (
	saltSize   = 16
	headerSize = saltSize + 4 + 1 // salt, record size, length of the key id
	recordSize = 1 << 16          // sealed; the last record may be shorter
)

// headerAfterSalt is the record size and the length of the key id, which is empty.
var headerAfterSalt = append(binary.BigEndian.AppendUint32(nil, recordSize), 0)

// putHeader writes the header to p and returns its length.
func putHeader(p []byte, salt [saltSize]byte) int {
	return copy(p, append(salt[:], headerAfterSalt...))
}

// checkHeader refuses every header but the one that putHeader writes: no other size of records
// costs memory, and no key id is looked up.
func checkHeader(p []byte) error {
	if !bytes.Equal(p[saltSize:headerSize], headerAfterSalt) {
		return fmt.Errorf("%w: the header has another record size or a key id", ErrInvalid)
	}
	return nil
}

// derive returns the blocks of HKDF (RFC 5869) whose first bytes are the key and the nonce
// of record 0. Each is one block of HKDF-Expand: HMAC of the info and a byte 1.
//
// crypto/hkdf makes 27 allocations of it, most of what a short message would cost.
func derive(ikm, salt []byte) (key, nonce [sha256.Size]byte) {
	prk := hmacSHA256(salt, ikm)
	return hmacSHA256(prk[:], []byte("Content-Encoding: aes128gcm\x00\x01")),
		hmacSHA256(prk[:], []byte("Content-Encoding: nonce\x00\x01"))
}

// hmacSHA256 is HMAC of RFC 2104. The key and the text have at most 64 bytes each.
func hmacSHA256(key, text []byte) [sha256.Size]byte {
	const block = sha256.BlockSize
	var inner, outer [2 * block]byte
	for i := range block {
		inner[i], outer[i] = 0x36, 0x5c
	}
	for i, b := range key {
		inner[i] ^= b
		outer[i] ^= b
	}
	sum := sha256.Sum256(inner[:block+copy(inner[block:], text)])
	return sha256.Sum256(outer[:block+copy(outer[block:], sum[:])])
}

const (
	tagSize = 16
	// overhead is what a record adds to its text: the delimiter and the tag of AES-GCM.
	overhead = 1 + tagSize

	delimiter     = 1 // ends the text of a record, with zeros as padding after it
	delimiterLast = 2 // ends the text of the last record
)

// records seals or opens the records of one text in their order. The nonce of each is its
// number, so that none can be moved, repeated or left out.
type records struct {
	aead   cipher.AEAD
	size   int // of a sealed record; only the last may be shorter
	number uint64
	first  [12]byte // the nonce of record 0
	nonce  [12]byte // of the current record
}

// newRecords derives the key and the nonces as sections 2.2 and 2.3 of RFC 8188 say.
func newRecords(ikm, salt []byte, size int) *records {
	key, first := derive(ikm, salt)
	block, err := aes.NewCipher(key[:16])
	must(err)
	aead, err := cipher.NewGCM(block)
	must(err)
	return &records{aead: aead, size: size, first: [12]byte(first[:12])}
}

// must panics on errors that no input causes: all lengths are constants.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// most is how many bytes of text a record holds.
func (r *records) most() int { return r.size - overhead }

// seal encrypts the text p[:n], padded with pad zeros, in place, and returns the length of
// the record. p must have room for it: n + pad + overhead bytes, which is at most size. All
// records but the last have that size.
func (r *records) seal(p []byte, n, pad int, last bool) int {
	r.advance()
	end := n + 1 + pad
	p[n] = delimiter
	if last {
		p[n] = delimiterLast
	}
	clear(p[n+1 : end])
	return len(r.aead.Seal(p[:0], r.nonce[:], p[:end], nil))
}

var errPadding = fmt.Errorf("%w: a record without a delimiter", ErrInvalid)

// open decrypts a record in place, and returns its text and whether it is the last one. A
// record that does not open is overwritten with zeros.
func (r *records) open(record []byte) (text []byte, last bool, err error) {
	if len(record) < overhead {
		return nil, false, ErrCut
	}
	if r.number == math.MaxUint64 {
		return nil, false, fmt.Errorf("%w: too many records", ErrInvalid)
	}
	r.advance()
	text, err = r.aead.Open(record[:0], r.nonce[:], record, nil)
	if err != nil {
		return nil, false, ErrInvalid
	}
	end := len(text) - 1
	for end >= 0 && text[end] == 0 {
		end--
	}
	switch {
	case end < 0:
		return nil, false, errPadding
	case text[end] == delimiterLast:
		return text[:end], true, nil
	case text[end] != delimiter:
		return nil, false, errPadding
	case len(record) < r.size:
		return nil, false, fmt.Errorf("%w: a short record that is not the last", ErrInvalid)
	}
	return text[:end], false, nil
}

// advance makes the nonce of the next record. It panics rather than use a nonce twice: open
// refuses that record before, and no sealer lives long enough to reach it.
func (r *records) advance() {
	if r.number == math.MaxUint64 {
		panic("seal: too many records")
	}
	r.nonce = r.first
	tail := r.nonce[4:]
	binary.BigEndian.PutUint64(tail, binary.BigEndian.Uint64(tail)^r.number)
	r.number++
}

// recordReader opens the records that src holds.
type recordReader struct {
	key     Key
	src     source
	records *records // nil until the header was read
	last    bool     // the last record was opened
}

// open opens the next record that has text in buf. It returns io.EOF if nothing follows the last
// record.
func (r *recordReader) open(buf []byte) ([]byte, error) {
	if r.records == nil {
		if n := r.src.fill(buf[:headerSize]); n < headerSize {
			return nil, r.cut()
		}
		if err := checkHeader(buf); err != nil {
			return nil, err
		}
		r.records = newRecords(r.key[:], buf[:saltSize], recordSize)
	}
	for !r.last {
		n := r.src.fill(buf[:r.records.size])
		if n < r.records.size && r.src.err != io.EOF {
			return nil, r.src.err
		}
		text, last, err := r.records.open(buf[:n])
		if r.last = last; err != nil || len(text) > 0 {
			return text, err
		}
	}
	if r.src.fill(buf[:1]) > 0 {
		return nil, fmt.Errorf("%w: bytes follow the last record", ErrInvalid)
	}
	return nil, r.src.err
}

// cut returns the error of a source that ended too early.
func (r *recordReader) cut() error {
	if r.src.err == io.EOF {
		return ErrCut
	}
	return r.src.err
}

// bufferSize is room for the header and one record.
const bufferSize = headerSize + recordSize

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// stream is a reader of what next makes, one record at a time.
type stream struct {
	// next makes the next bytes, at least one, in buf. It is not called again after an error,
	// and returns bytes or an error, never both.
	next func(buf []byte) ([]byte, error)

	buf  *[bufferSize]byte // from the pool, while rest lies in it
	rest []byte            // made, but not read yet
	err  error
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(s.rest) == 0 && s.err == nil {
		if s.buf == nil {
			s.buf = buffers.Get().(*[bufferSize]byte)
		}
		s.rest, s.err = s.next(s.buf[:])
	}
	n := copy(p, s.rest)
	if s.rest = s.rest[n:]; n == 0 && s.buf != nil {
		buffers.Put(s.buf)
		s.buf = nil
	}
	if n == 0 {
		return 0, s.err
	}
	return n, nil
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
