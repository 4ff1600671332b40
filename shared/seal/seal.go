// Package seal encrypts and authenticates what crosses the tunnel: RFC 8188's aes128gcm
// with records of 64 KiB, random salts and no key id. It knows neither the runtime's secret
// nor HTTP: the caller derives a Key for one direction of one request.
//
// There is one form. The records hold a byte that tells the compression, then the text. The last
// record is padded, so that the length tells less of the text. NewSealer and NewOpener are
// readers of the two sides of it, and Seal is for a text in memory, which it compresses if that
// pays. Start reading at records.go.
package seal

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Key is the input keying material of RFC 8188.
type Key [32]byte

// ErrInvalid matches the error of bytes that were not sealed with the key, or were changed.
var ErrInvalid = errors.New("not sealed with this key, or changed on the way")

// ErrCut matches the error of sealed bytes that end where a further record should begin.
// Bytes cut within a record do not open: their error is ErrInvalid.
var ErrCut = errors.New("sealed bytes end before their last record")

// The leading byte.
const (
	uncompressed = 0
	gzipped      = 1
)

const (
	// compressAbove is the length in bytes above which compression is tried: shorter texts
	// travel in one packet anyway.
	compressAbove = 1 << 10
	// sampleBytes is how much of a longer text is compressed to learn whether the rest is
	// worth the time.
	sampleBytes = 64 << 10
	// padTo is what the length is rounded up to, so that it tells less of the content.
	padTo = 256
	// keptBytes is the longest buffer that is kept for the next text.
	keptBytes = 1 << 20
)

// Size returns how many bytes NewSealer makes of n bytes, n being at most 1<<62.
func Size(n int64) int64 {
	n++ // the leading byte
	const most = recordSize - overhead
	return headerSize + n + padding(n) + overhead*((n+most-1)/most)
}

// padding returns how many zeros the last record gets of a text of n bytes, at least one: they
// make n a multiple of padTo, unless the record is full before.
func padding(n int64) int64 {
	const most = recordSize - overhead
	last := (n-1)%most + 1
	return min((padTo-n%padTo)%padTo, most-last)
}

// Seal returns text sealed, compressed by gzip if it is longer than 1 KiB and gets shorter by a
// fifth.
func Seal(key Key, text []byte) []byte { return sealWith(newSalt(), key, text) }

func sealWith(salt [saltSize]byte, key Key, text []byte) []byte {
	lead := byte(uncompressed)
	if z := compress(text); z != nil {
		defer z.free()
		lead, text = gzipped, z.out.Bytes()
	}
	out := bytes.NewBuffer(make([]byte, 0, Size(int64(len(text)))+bytes.MinRead))
	_, _ = out.ReadFrom(newSealer(salt, key, lead, bytes.NewReader(text))) // neither fails
	return out.Bytes()
}

// NewSealer returns a reader of what src yields, sealed without compression: Size(n) bytes for n
// bytes of src. It holds one record of 64 KiB at most. An error of src ends it with that error,
// and without a last record.
func NewSealer(key Key, src io.Reader) io.Reader { return newSealer(newSalt(), key, uncompressed, src) }

func newSalt() (salt [saltSize]byte) {
	_, _ = rand.Read(salt[:]) // never fails
	return salt
}

func newSealer(salt [saltSize]byte, key Key, lead byte, src io.Reader) io.Reader {
	s := &sealer{
		salt: salt, records: newRecords(key[:], salt[:], recordSize),
		src: source{r: src}, ahead: []byte{lead},
	}
	return &stream{next: s.seal}
}

type sealer struct {
	salt    [saltSize]byte
	records *records
	src     source
	ahead   []byte // read already: one byte after a full record tells that it is not the last one
	total   int64  // bytes of text sealed
	done    bool
}

// seal makes the next record in buf, the first one after the header.
func (s *sealer) seal(buf []byte) ([]byte, error) {
	if s.done {
		return nil, io.EOF
	}
	from := 0
	if s.total == 0 {
		from = putHeader(buf, s.salt)
	}
	text, most := buf[from:], s.records.most()
	n := copy(text, s.ahead)
	n += s.src.fill(text[n : most+1])
	pad := 0
	switch {
	case n > most:
		s.ahead = append(s.ahead[:0], text[most])
		n = most
	case s.src.err != io.EOF:
		return nil, s.src.err
	default:
		s.done = true
		pad = int(padding(s.total + int64(n)))
	}
	s.total += int64(n)
	return buf[:from+s.records.seal(text, n, pad, s.done)], nil
}

// NewOpener returns a reader of the text that src holds sealed. What it yields is authentic, and
// io.EOF comes only after the last record and the end of src. Other errors are ErrInvalid,
// ErrCut, and those of src as they are. It holds one record of 64 KiB, and gzip's window, at
// most; the caller bounds the text, which may be much longer than src.
func NewOpener(key Key, src io.Reader) io.Reader {
	r := &recordReader{key: key, src: source{r: src}}
	return &opener{records: &stream{next: r.open}}
}

type opener struct {
	records *stream   // the text of the records
	text    io.Reader // nil until the leading byte was read
	err     error
}

// Read implements io.Reader.
func (o *opener) Read(p []byte) (n int, err error) {
	if o.text == nil && o.err == nil {
		o.text, o.err = o.begin()
	}
	if o.err == nil {
		n, err = o.text.Read(p)
		o.err = o.cause(err)
	}
	return n, o.err
}

// begin reads the leading byte.
func (o *opener) begin() (io.Reader, error) {
	var lead [1]byte
	if _, err := io.ReadFull(o.records, lead[:]); err == io.EOF {
		return nil, fmt.Errorf("%w: the leading byte is missing", ErrInvalid)
	} else if err != nil {
		return nil, err
	}
	switch lead[0] {
	case uncompressed:
		return o.records, nil
	case gzipped:
		z, err := gzip.NewReader(o.records)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF // of gzip, not of the text
		}
		return z, o.cause(err)
	}
	return nil, fmt.Errorf("%w: unknown compression %d", ErrInvalid, lead[0])
}

// cause returns the error of the records if they have one: gzip's own only follows from it.
func (o *opener) cause(err error) error {
	switch of := o.records.err; {
	case err == nil, err == of:
		return err
	case of != nil && of != io.EOF:
		return of
	}
	return fmt.Errorf("%w: not a text compressed by gzip: %w", ErrInvalid, err)
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
