package seal

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"colabrelay/shared/bounded"
)

// The leading byte of messages and parts.
const (
	uncompressed = 0
	gzipped      = 1
)

const (
	// compressAbove is the length in bytes above which compression is tried: shorter
	// messages travel in one packet anyway.
	compressAbove = 1 << 10
	// sampleBytes is how much of a longer message is compressed to learn whether the rest
	// is worth the time.
	sampleBytes = 64 << 10
	// padTo is what the length of a message is rounded up to, so that it tells less of the
	// content.
	padTo = 256
	// keptBytes is the longest buffer that is kept for the next message.
	keptBytes = 1 << 20
)

// SealMessage seals text after a byte that says how it is compressed: by gzip, if text is
// longer than 1 KiB and gets shorter by a fifth. The last record is padded so that the
// length is the next multiple of 256 bytes, unless the record is full before.
func SealMessage(key Key, text []byte) []byte {
	if z := compress(text); z != nil {
		defer z.free()
		return sealPadded(newSalt(), key, gzipped, z.out.Bytes())
	}
	return sealPadded(newSalt(), key, uncompressed, text)
}

func sealPadded(salt [saltSize]byte, key Key, lead byte, text []byte) []byte {
	const most = recordSize - overhead
	n := 1 + len(text)
	last := (n-1)%most + 1 // bytes in the last record
	pad := min((padTo-n%padTo)%padTo, most-last)
	return sealWhole(salt, key, []byte{lead}, text, pad)
}

// OpenMessage returns the text that SealMessage sealed. It works in place, as Open does,
// unless the text is compressed. The error is ErrInvalid, ErrCut, or bounded.ErrTooLong if
// the text has more than max bytes; it takes memory for max bytes at most.
func OpenMessage(key Key, sealed []byte, max int64) ([]byte, error) {
	return OpenMessageIn(key, sealed, max, func(int64) error { return nil })
}

// OpenMessageIn is OpenMessage that calls room with the length of the text before it takes
// memory for it, and ends with its error.
func OpenMessageIn(key Key, sealed []byte, max int64, room func(bytes int64) error) ([]byte, error) {
	text, err := Open(key, sealed)
	if err != nil {
		return nil, err
	}
	if len(text) == 0 {
		return nil, errNoLeadingByte
	}
	lead, text := text[0], text[1:]
	switch lead {
	case uncompressed:
		if int64(len(text)) > max {
			return nil, bounded.TooLong(max)
		}
		return text, room(int64(len(text)))
	case gzipped:
		return decompress(text, max, room)
	}
	return nil, fmt.Errorf("%w: unknown compression %d", ErrInvalid, lead)
}

// compressor is a gzip writer with its buffer. A new one takes about 800 KB, so they are
// used again.
type compressor struct {
	gz  *gzip.Writer
	out bytes.Buffer
}

// Level 1 compresses a tenth less than level 6 and is four times as fast.
var compressors = sync.Pool{New: func() any {
	gz, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	must(err)
	return &compressor{gz: gz}
}}

func (z *compressor) free() {
	if z.out.Cap() > keptBytes {
		z.out = bytes.Buffer{}
	}
	compressors.Put(z)
}

// compress returns text compressed, or nil if that does not pay. The caller frees it.
func compress(text []byte) *compressor {
	if len(text) <= compressAbove {
		return nil
	}
	z := compressors.Get().(*compressor)
	if len(text) > sampleBytes && !z.saves(text[:sampleBytes]) || !z.saves(text) {
		z.free()
		return nil
	}
	return z
}

// saves compresses text and reports whether that makes it shorter by a fifth.
func (z *compressor) saves(text []byte) bool {
	z.out.Reset()
	z.gz.Reset(&z.out)
	_, _ = z.gz.Write(text) // a bytes.Buffer does not fail
	_ = z.gz.Close()
	return 5*z.out.Len() <= 4*len(text)
}

type decompressor struct {
	gz gzip.Reader
	in bytes.Reader
}

var decompressors = sync.Pool{New: func() any { return new(decompressor) }}

// maxRatio is more than deflate can compress anything.
const maxRatio = 1033

// decompress returns the text of one gzip member. The length that stands at the member's
// end tells how much memory to take, and gzip checks it.
func decompress(member []byte, max int64, room func(bytes int64) error) ([]byte, error) {
	if len(member) < 4 {
		return nil, errGzip
	}
	length := int64(binary.LittleEndian.Uint32(member[len(member)-4:]))
	switch {
	case length > max:
		return nil, bounded.TooLong(max)
	case length > maxRatio*int64(len(member)):
		return nil, errGzip
	}
	if err := room(length); err != nil {
		return nil, err
	}
	z := decompressors.Get().(*decompressor)
	defer decompressors.Put(z)
	defer z.in.Reset(nil) // the message is not kept
	z.in.Reset(member)
	if err := z.gz.Reset(&z.in); err != nil {
		return nil, errGzip
	}
	z.gz.Multistream(false)
	text := make([]byte, length)
	if _, err := io.ReadFull(&z.gz, text); err != nil {
		return nil, errGzip
	}
	var more [1]byte
	if n, err := z.gz.Read(more[:]); n > 0 || err != io.EOF || z.in.Len() > 0 {
		return nil, errGzip
	}
	return text, nil
}

var errGzip = fmt.Errorf("%w: not a text compressed by gzip", ErrInvalid)
