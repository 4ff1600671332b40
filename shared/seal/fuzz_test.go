package seal

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"colabrelay/shared/bounded"
)

// FuzzOpen opens foreign bytes in every way. All agree, and none takes more than a few
// times the memory of its input: the streams none but their buffers.
func FuzzOpen(f *testing.F) {
	f.Add([]byte{}, byte(0))
	f.Add(Seal(testKey, nil), byte(0))
	f.Add(Seal(testKey, []byte("\x00text")), byte(1))
	f.Add(Seal(testKey, randomText(2*most)), byte(2))
	f.Add(Seal(otherKey, []byte("text")), byte(0))
	f.Add(SealMessage(testKey, bytes.Repeat([]byte("text"), 1000)), byte(0))
	f.Fuzz(func(t *testing.T, sealed []byte, how byte) {
		agree(t, sealed, sources[[]string{"whole", "half", "end with the data"}[how%3]])
	})
}

// FuzzOpenRecords opens records that a holder of the key made of foreign bytes: the
// delimiter and the padding of each are the fuzzer's.
func FuzzOpenRecords(f *testing.F) {
	f.Add([]byte("\x00text\x02"), []byte{})
	f.Add([]byte("\x00"), []byte("\x01text\x02\x00\x00"))
	f.Add([]byte("\x01\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"), []byte("\x02"))
	f.Fuzz(func(t *testing.T, first, last []byte) {
		salt := newSalt()
		sealed := make([]byte, headerSize)
		putHeader(sealed, salt)
		r := newRecords(testKey[:], salt[:], recordSize)
		if len(last) > 0 { // then first fills its record
			first = append(first, make([]byte, max(0, recordSize-tagSize-len(first)))...)
		}
		for _, plain := range [][]byte{first, last} {
			r.advance()
			sealed = r.aead.Seal(sealed, r.nonce[:], plain, nil)
		}
		agree(t, sealed, sources["whole"])
	})
}

// FuzzOpenMessage opens foreign texts, sealed by a holder of the key.
func FuzzOpenMessage(f *testing.F) {
	for _, n := range []int{0, 10, 2000} {
		text, err := Open(testKey, SealMessage(testKey, bytes.Repeat([]byte("text"), n)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		const max = 1 << 16
		got, err := OpenMessage(testKey, Seal(testKey, text), max)
		if err != nil && !errors.Is(err, ErrInvalid) && !errors.Is(err, bounded.ErrTooLong) {
			t.Errorf("error %v", err)
		}
		if len(got) > max || len(got) > maxRatio*len(text) {
			t.Errorf("%d bytes of %d", len(got), len(text))
		}
		if err != nil {
			return
		}
		if again, err := OpenMessage(testKey, SealMessage(testKey, got), max); err != nil || !bytes.Equal(again, got) {
			t.Errorf("sealed again: %d bytes of %d, %v", len(again), len(got), err)
		}
	})
}

func agree(t *testing.T, sealed []byte, source func(io.Reader) io.Reader) {
	t.Helper()
	whole, wholeErr := Open(testKey, bytes.Clone(sealed))
	for _, size := range []int{100, recordSize, bufferSize} {
		r := NewOpener(testKey, source(bytes.NewReader(sealed)))
		got, err := readWith(r, size)
		if wholeErr == nil && (err != io.EOF || !bytes.Equal(got, whole)) {
			t.Errorf("buffer of %d bytes: %d bytes and %v, Open says %d", size, len(got), err, len(whole))
		}
		if wholeErr != nil && err.Error() != wholeErr.Error() {
			t.Errorf("buffer of %d bytes: %v, Open says %v", size, err, wholeErr)
		}
		if n, again := r.Read(make([]byte, size)); n > 0 || again != err {
			t.Errorf("read after the end: %d bytes, %v; before: %v", n, again, err)
		}
	}
	message, err := OpenMessage(testKey, bytes.Clone(sealed), 1<<20)
	if wholeErr != nil && (err == nil || err.Error() != wholeErr.Error()) {
		t.Errorf("OpenMessage: %v, Open says %v", err, wholeErr)
	}
	if wholeErr != nil || len(whole) == 0 || whole[0] != uncompressed {
		return
	}
	if err != nil || !bytes.Equal(message, whole[1:]) {
		t.Errorf("OpenMessage: %d bytes, %v, want %d", len(message), err, len(whole)-1)
	}
	part := NewPartOpener(testKey, source(bytes.NewReader(sealed)))
	if err := iotest.TestReader(part, whole[1:]); err != nil {
		t.Error("part:", err)
	}
}
