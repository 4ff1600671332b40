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
