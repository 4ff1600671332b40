package seal

import (
	"fmt"
	"io"
)

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
