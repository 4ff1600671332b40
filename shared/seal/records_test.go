package seal

import (
	"bytes"
	"errors"
	"io"
	"math"
	"testing"
)

func TestRecordsBeyondTheLastNumberAreRefused(t *testing.T) {
	sealed := Seal(testKey, randomText(2*most))
	o := newOpener(testKey, bytes.NewReader(sealed[headerSize:]))
	o.records = newRecords(testKey[:], sealed[:saltSize], recordSize)
	o.records.number = math.MaxUint64
	if n, err := o.Read(make([]byte, recordSize)); n > 0 || !errors.Is(err, ErrInvalid) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// limited takes as many bytes, and then fails or takes less than it is given.
type limited struct {
	bytes.Buffer
	left int
	err  error
}

func (l *limited) Write(p []byte) (int, error) {
	n, _ := l.Buffer.Write(p[:min(l.left, len(p))])
	l.left -= n
	if n < len(p) {
		return n, l.err
	}
	return n, nil
}

func TestAFailedWriteLosesNothing(t *testing.T) {
	text := randomText(2*most + 100)
	sealed := Seal(testKey, text)
	for _, given := range []error{errSource, nil} {
		want := given
		if want == nil {
			want = io.ErrShortWrite
		}
		for _, limit := range []int{0, 1, most, most + 1, len(text) - 1} {
			r := NewOpener(testKey, bytes.NewReader(sealed))
			w := &limited{left: limit, err: given}
			n, err := r.(io.WriterTo).WriteTo(w)
			if n != int64(limit) || err != want {
				t.Errorf("a writer of %d bytes: %d bytes, %v, want %v", limit, n, err, want)
			}
			if rest := readAll(t, r); !bytes.Equal(append(w.Bytes(), rest...), text) {
				t.Errorf("a writer of %d bytes: the rest has %d bytes", limit, len(rest))
			}
		}
	}
}
