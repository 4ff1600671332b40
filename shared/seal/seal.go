// Package seal encrypts and authenticates what crosses the tunnel: RFC 8188's aes128gcm
// with records of 64 KiB, random salts and no key id. It knows neither the runtime's secret
// nor HTTP: the caller derives a Key for one direction of one request.
//
// A text is sealed whole (Seal), as a stream (NewSealer), as a message that is compressed
// and padded (SealMessage) or as a part of a file (NewPartSealer). Start reading at
// records, which all four share.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Key is the input keying material of RFC 8188.
type Key [32]byte

// ErrInvalid matches the error of bytes that were not sealed with the key, or were changed.
var ErrInvalid = errors.New("not sealed with this key, or changed on the way")

// ErrCut matches the error of sealed bytes that end where a further record should begin.
// Bytes cut within a record do not open: their error is ErrInvalid.
var ErrCut = errors.New("sealed bytes end before their last record")

const (
	saltSize   = 16
	headerSize = saltSize + 4 + 1 // salt, record size, length of the key id
	recordSize = 1 << 16          // sealed; the last record may be shorter
)

// Size returns how many bytes Seal and NewSealer make of n bytes, n being at most 1<<62.
func Size(n int64) int64 {
	const most = recordSize - overhead
	return headerSize + n + overhead*max(1, (n+most-1)/most)
}

// Seal returns text sealed.
func Seal(key Key, text []byte) []byte { return sealWhole(newSalt(), key, nil, text, 0) }

// sealWhole seals lead and text as one text, with pad zeros in the last record.
func sealWhole(salt [saltSize]byte, key Key, lead, text []byte, pad int) []byte {
	n := len(lead) + len(text)
	out := make([]byte, Size(int64(n))+int64(pad))
	putHeader(out, salt)
	r := newRecords(key[:], salt[:], recordSize)
	for rest := out[headerSize:]; ; {
		m := copy(rest, lead)
		m += copy(rest[m:min(r.most(), len(rest))], text)
		lead, text = nil, text[m-len(lead):]
		if len(text) == 0 {
			r.seal(rest, m, pad, true)
			return out
		}
		rest = rest[r.seal(rest, m, 0, false):]
	}
}

// Open returns the text that Seal sealed. It decrypts in place: sealed is overwritten, also
// by a text that fails, and the text is a part of it. The error is ErrInvalid or ErrCut.
func Open(key Key, sealed []byte) ([]byte, error) {
	if len(sealed) < headerSize {
		return nil, ErrCut
	}
	if err := checkHeader(sealed); err != nil {
		return nil, err
	}
	r := newRecords(key[:], sealed[:saltSize], recordSize)
	rest := sealed[headerSize:]
	whole := rest[:0]
	for {
		record := rest[:min(len(rest), r.size)]
		text, last, err := r.open(record)
		if err != nil {
			return nil, err
		}
		whole = append(whole, text...)
		rest = rest[len(record):]
		if !last {
			continue
		}
		if len(rest) > 0 {
			return nil, errAfterLast
		}
		return whole, nil
	}
}

var errAfterLast = fmt.Errorf("%w: bytes follow the last record", ErrInvalid)

func newSalt() (salt [saltSize]byte) {
	_, _ = rand.Read(salt[:]) // never fails
	return salt
}

// headerAfterSalt is the record size and the length of the key id, which is empty.
var headerAfterSalt = append(binary.BigEndian.AppendUint32(nil, recordSize), 0)

func putHeader(p []byte, salt [saltSize]byte) {
	copy(p, salt[:])
	copy(p[saltSize:], headerAfterSalt)
}

// checkHeader refuses every header but the one that Seal writes: no other size of records
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
