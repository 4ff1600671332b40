// Package seal encrypts and authenticates what crosses the tunnel: RFC 8188's aes128gcm
// with records of 64 KiB, random salts and no key id. It knows neither the runtime's secret
// nor HTTP: the caller derives a Key for one direction of one request.
//
// There is one form. The records hold a byte that tells the compression, then the text. The last
// record is padded, so that the length tells less of the text. NewSealer and NewOpener are
// readers of the two sides of it, and Seal is for a text in memory, which it compresses if that
// pays. Start reading at NewSealer.
package seal

import (
	"bytes"
	"compress/gzip"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
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

// WriteTo implements io.WriterTo: each record of a text that is not compressed is one write.
func (o *opener) WriteTo(w io.Writer) (int64, error) {
	if o.text == nil && o.err == nil {
		o.text, o.err = o.begin()
	}
	if o.err == nil && o.text == io.Reader(o.records) {
		return o.records.WriteTo(w)
	}
	return io.Copy(w, struct{ io.Reader }{o})
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
	if !s.more() {
		return 0, s.err
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// WriteTo implements io.WriterTo: each record is one write.
func (s *stream) WriteTo(w io.Writer) (written int64, err error) {
	for s.more() {
		n, err := w.Write(s.rest)
		written += int64(n)
		s.rest = s.rest[n:]
		if err != nil {
			return written, err
		}
	}
	if s.err == io.EOF {
		return written, nil
	}
	return written, s.err
}

// more reports whether there are bytes to read, after making some if there were none.
func (s *stream) more() bool {
	if len(s.rest) == 0 && s.err == nil {
		if s.buf == nil {
			s.buf = buffers.Get().(*[bufferSize]byte)
		}
		s.rest, s.err = s.next(s.buf[:])
	}
	if len(s.rest) == 0 && s.buf != nil {
		buffers.Put(s.buf)
		s.buf = nil
	}
	return len(s.rest) > 0
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
