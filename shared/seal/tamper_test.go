package seal

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// refused fails unless sealed is refused with the error, and nothing but whole records of text
// comes before it.
func refused(t *testing.T, what string, text, sealed []byte, want error) {
	t.Helper()
	got, err := open(sealed)
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
	if !bytes.HasPrefix(text, got) || len(got) > 0 && (len(got)+1)%most != 0 && len(got) != len(text) {
		t.Errorf("%s: %d bytes that are not records of the text", what, len(got))
	}
}

// parts returns the header and the records of sealed bytes.
func parts(sealed []byte) (header []byte, records [][]byte) {
	return sealed[:headerSize], slices.Collect(slices.Chunk(sealed[headerSize:], recordSize))
}

func join(header []byte, records ...[]byte) []byte {
	return slices.Concat(header, slices.Concat(records...))
}

func TestAFlippedBitIsRefused(t *testing.T) {
	small := randomText(100)
	sealed := Seal(testKey, small)
	for at := range sealed {
		sealed[at] ^= 1 << (at % 8)
		refused(t, "small text", small, sealed, ErrInvalid)
		sealed[at] ^= 1 << (at % 8)
	}

	long := randomText(3 * most)
	sealed = Seal(testKey, long)
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		bit := r.IntN(8 * len(sealed))
		sealed[bit/8] ^= 1 << (bit % 8)
		refused(t, "long text", long, sealed, ErrInvalid)
		sealed[bit/8] ^= 1 << (bit % 8)
	}
	if got, err := open(sealed); err != nil || !bytes.Equal(got, long) {
		t.Errorf("the unchanged bytes do not open: %v", err)
	}
}

func TestCutBytesAreRefused(t *testing.T) {
	small := randomText(100)
	sealed := Seal(testKey, small)
	for n := range sealed {
		want := ErrInvalid // within the record
		if n < headerSize+overhead {
			want = ErrCut
		}
		refused(t, "small text", small, sealed[:n], want)
	}

	for _, full := range []int{0, 1, 2} { // bytes more than fill the records
		long := randomText(3*most - 2 + full)
		sealed = Seal(testKey, long)
		for at := headerSize; at < len(sealed); at += recordSize {
			refused(t, "at a boundary", long, sealed[:at], ErrCut)
			refused(t, "a byte before a boundary", long, sealed[:at-1], map[bool]error{true: ErrCut, false: ErrInvalid}[at == headerSize])
			if at+overhead < len(sealed) {
				refused(t, "after a boundary, less than a record", long, sealed[:at+overhead-1], ErrCut)
				refused(t, "after a boundary, as long as a record", long, sealed[:at+overhead], ErrInvalid)
			}
		}
	}
}

func TestChangedOrdersOfRecordsAreRefused(t *testing.T) {
	for _, n := range []int{3*most + 10, 4*most - 1} { // a short and a full last record
		text := randomText(n)
		sealed := Seal(testKey, text)
		h, r := parts(sealed)
		h2, r2 := parts(Seal(testKey, text)) // the same text and key, another salt
		_, wrong := parts(Seal(otherKey, text))
		for what, c := range map[string]struct {
			sealed []byte
			want   error
		}{
			"first two swapped":              {join(h, r[1], r[0], r[2], r[3]), ErrInvalid},
			"first dropped":                  {join(h, r[1], r[2], r[3]), ErrInvalid},
			"middle dropped":                 {join(h, r[0], r[2], r[3]), ErrInvalid},
			"last dropped":                   {join(h, r[0], r[1], r[2]), ErrCut},
			"last repeated":                  {join(h, r[0], r[1], r[2], r[3], r[3]), ErrInvalid},
			"a byte appended":                {join(h, r[0], r[1], r[2], r[3], []byte{0}), ErrInvalid},
			"a whole text appended":          {join(sealed, sealed), ErrInvalid},
			"last of another text":           {join(h, r[0], r[1], r[2], r2[3]), ErrInvalid},
			"header of another text":         {join(h2, r[0], r[1], r[2], r[3]), ErrInvalid},
			"middle sealed with another key": {join(h, r[0], wrong[1], r[2], r[3]), ErrInvalid},
			"all sealed with another key":    {Seal(otherKey, text), ErrInvalid},
			"no bytes at all":                {nil, ErrCut},
		} {
			refused(t, what, text, c.sealed, c.want)
		}
	}
}

func TestOtherHeadersAreRefused(t *testing.T) {
	text := randomText(100)
	sealed := Seal(testKey, text)
	header := func(recordSize uint32, idLength byte) []byte {
		h := bytes.Clone(sealed[:headerSize])
		h[16], h[17], h[18], h[19], h[20] = byte(recordSize>>24), byte(recordSize>>16), byte(recordSize>>8), byte(recordSize), idLength
		return h
	}
	for what, h := range map[string][]byte{
		"records of 0 bytes":        header(0, 0),
		"records a byte shorter":    header(recordSize-1, 0),
		"records a byte longer":     header(recordSize+1, 0),
		"records of 4 GiB":          header(1<<32-1, 0),
		"a key id":                  append(header(recordSize, 2), "a1"...),
		"a key id that is too long": header(recordSize, 255),
	} {
		refused(t, what, text, append(h, sealed[headerSize:]...), ErrInvalid)
	}
}

// Records that only a holder of the key can make.
func TestRecordsThatBreakTheRulesAreRefused(t *testing.T) {
	full := string(append(make([]byte, most), delimiter)) // a record of zeros only
	for what, sealed := range map[string][]byte{
		"zeros only":                   made("\x00\x00\x00"),
		"a full record of zeros":       made(full[:most]+"\x00", "\x02"),
		"another delimiter":            made("\x00text\x03"),
		"another delimiter, padded":    made("\x00text\x03\x00"),
		"a short record in the middle": made("\x00text\x01", "\x02"),
		"a short record, not the last": made("\x00text\x01"),
		"a full last record, then one": made(full[:most]+"\x02", "\x02"),
	} {
		refused(t, what, make([]byte, most), sealed, ErrInvalid)
	}
	for what, c := range map[string]struct {
		sealed []byte
		text   string
	}{
		"padding everywhere":     {made("\x00ab\x01"+full[:most-3], "cd\x02\x00\x00"), "\x00ab" + "cd"},
		"records without text":   {made("\x01"+full[:most], "\x01"+full[:most], "\x00text\x02"), "\x00text"},
		"an empty last record":   {made("\x00"+full[:most-1]+"\x01", "\x02"), full[:most]},
		"delimiters in the text": {made("\x00\x01\x02\x02\x00\x02\x00"), "\x00\x01\x02\x02\x00"},
	} {
		for how, read := range readings {
			if got := read(t, NewOpener(testKey, bytes.NewReader(c.sealed))); string(got) != c.text[1:] {
				t.Errorf("%s: %d bytes, read %s", what, len(got), how)
			}
		}
	}
}
