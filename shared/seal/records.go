package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"math"
)

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
