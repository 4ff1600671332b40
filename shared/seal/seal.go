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
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
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
