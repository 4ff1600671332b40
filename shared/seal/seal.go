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

	"colabrelay/shared/bounded"
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

// NewSealer returns a reader of what src yields, sealed: Size(n) bytes for n bytes of src.
// It reads src straight into its records and holds one of 64 KiB at most. An error of src
// ends it with that error, and without a last record.
func NewSealer(key Key, src io.Reader) io.Reader {
	return newSealer(newSalt(), key, src)
}

func newSealer(salt [saltSize]byte, key Key, src io.Reader) *sealer {
	s := &sealer{salt: salt, records: newRecords(key[:], salt[:], recordSize), src: source{r: src}}
	s.next = s.seal
	return s
}

type sealer struct {
	stream
	salt    [saltSize]byte
	started bool // the header was made
	records *records
	src     source

	// held is the byte that was read after the last full record, to learn whether that is
	// the last one.
	held    byte
	holding bool
}

func (s *sealer) seal(buf []byte) ([]byte, error) {
	from := 0
	if !s.started {
		s.started = true
		putHeader(buf, s.salt)
		if len(buf) < bufferSize {
			return buf[:headerSize], nil
		}
		from = headerSize
	}
	n, last, err := s.text(buf[from:])
	if err != nil {
		return nil, err
	}
	return buf[:from+s.records.seal(buf[from:], n, 0, last)], nil
}

// text reads the text of a record, and whether it is the last one.
func (s *sealer) text(buf []byte) (n int, last bool, err error) {
	if s.src.err == io.EOF && !s.holding && s.records.number > 0 {
		return 0, false, io.EOF
	}
	most := s.records.most()
	if s.holding {
		buf[0], s.holding, n = s.held, false, 1
	}
	n += s.src.fill(buf[n : most+1])
	if n > most {
		s.held, s.holding = buf[most], true
		return most, false, nil
	}
	if s.src.err != io.EOF {
		return 0, false, s.src.err
	}
	return n, true, nil
}

// NewOpener returns a reader of the text that src holds sealed. It yields whole records
// only, each after it was authenticated, and io.EOF only after the last one and the end of
// src. Other errors are ErrInvalid, ErrCut, and those of src as they are. It holds one
// record of 64 KiB at most.
func NewOpener(key Key, src io.Reader) io.Reader { return newOpener(key, src) }

func newOpener(key Key, src io.Reader) *opener {
	o := &opener{key: key, src: source{r: src}}
	o.next = o.open
	return o
}

type opener struct {
	stream
	key     Key
	src     source
	records *records // nil until the header was read
	last    bool     // the last record was opened

	// led says that the text begins with the leading byte of a part, until it was read.
	led bool
}

func (o *opener) open(buf []byte) ([]byte, error) {
	if o.records == nil {
		if err := o.header(buf); err != nil {
			return nil, err
		}
	}
	for !o.last {
		text, err := o.record(buf)
		if err != nil || len(text) > 0 {
			return text, err
		}
	}
	return nil, o.end(buf)
}

func (o *opener) header(buf []byte) error {
	if n := o.src.fill(buf[:headerSize]); n < headerSize {
		return o.cut()
	}
	if err := checkHeader(buf); err != nil {
		return err
	}
	o.records = newRecords(o.key[:], buf[:saltSize], recordSize)
	return nil
}

// record opens the next record. Its text may be empty.
func (o *opener) record(buf []byte) ([]byte, error) {
	n := o.src.fill(buf[:o.records.size])
	if n < o.records.size && o.src.err != io.EOF {
		return nil, o.src.err
	}
	text, last, err := o.records.open(buf[:n])
	if err != nil {
		return nil, err
	}
	o.last = last
	if !o.led || len(text) == 0 {
		return text, nil
	}
	o.led = false
	if text[0] != uncompressed {
		return nil, errCompressedPart
	}
	return text[:copy(text, text[1:])], nil
}

// end returns io.EOF if nothing follows the last record.
func (o *opener) end(buf []byte) error {
	if o.src.fill(buf[:1]) > 0 {
		return errAfterLast
	}
	if o.src.err == io.EOF && o.led {
		return errNoLeadingByte
	}
	return o.src.err
}

// cut returns the error of a source that ended too early.
func (o *opener) cut() error {
	if o.src.err == io.EOF {
		return ErrCut
	}
	return o.src.err
}

var (
	errCompressedPart = fmt.Errorf("%w: a part of a file is compressed", ErrInvalid)
	errNoLeadingByte  = fmt.Errorf("%w: the leading byte is missing", ErrInvalid)
)
