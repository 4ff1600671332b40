package seal

import "io"

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
