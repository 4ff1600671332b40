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
