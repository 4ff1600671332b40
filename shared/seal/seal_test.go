package seal

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

const most = recordSize - overhead

var (
	testKey  = Key{1, 2, 3}
	otherKey = Key{3, 2, 1}
)

// randomText returns n bytes that are the same for the same n.
func randomText(n int) []byte {
	text := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16)}).Read(text)
	return text
}

// lengths are those around which records begin and end.
var lengths = []int{0, 1, 256, most - 2, most - 1, most, most + 1, recordSize, 2 * most, 2*most + 1}

func readAll(t *testing.T, r io.Reader) []byte {
	t.Helper()
	all, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func writeTo(t *testing.T, r io.Reader) []byte {
	t.Helper()
	var out bytes.Buffer
	n, err := r.(io.WriterTo).WriteTo(&out)
	if err != nil || n != int64(out.Len()) {
		t.Fatalf("%d of %d bytes, %v", n, out.Len(), err)
	}
	return out.Bytes()
}

// large reads r with a p that has room for records.
func large(t *testing.T, r io.Reader) []byte {
	t.Helper()
	var all []byte
	for p := make([]byte, 3*recordSize); ; {
		n, err := r.Read(p)
		all = append(all, p[:n]...)
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

var readings = map[string]func(*testing.T, io.Reader) []byte{
	"ReadAll": readAll, "WriteTo": writeTo, "large buffer": large,
	"in pieces": func(t *testing.T, r io.Reader) []byte { return readAll(t, iotest.HalfReader(r)) },
}

var sources = map[string]func(io.Reader) io.Reader{
	"whole": func(r io.Reader) io.Reader { return r }, "half": iotest.HalfReader,
	"end with the data": iotest.DataErrReader,
}

func TestWhatIsSealedOpensInEveryWay(t *testing.T) {
	for _, n := range lengths {
		text := randomText(n)
		sealed := map[string][]byte{"Seal": Seal(testKey, text)}
		for how, read := range readings {
			sealed[how] = read(t, NewSealer(testKey, iotest.HalfReader(bytes.NewReader(text))))
		}
		for by, s := range sealed {
			if int64(len(s)) != Size(int64(n)) {
				t.Errorf("%d by %s: %d bytes, Size says %d", n, by, len(s), Size(int64(n)))
			}
			if got, err := Open(testKey, bytes.Clone(s)); err != nil || !bytes.Equal(got, text) {
				t.Errorf("%d by %s: another text from Open, %v", n, by, err)
			}
		}
		for how, read := range readings {
			for from, source := range sources {
				if !bytes.Equal(read(t, NewOpener(testKey, source(bytes.NewReader(sealed[how])))), text) {
					t.Errorf("%d: another text from a stream by %s, source %s", n, how, from)
				}
			}
		}
	}
}

func TestPartsOpenAndAnnounceTheirSize(t *testing.T) {
	for _, n := range lengths {
		text := randomText(n)
		for how, read := range readings {
			sealed := read(t, NewPartSealer(testKey, bytes.NewReader(text)))
			if int64(len(sealed)) != PartSize(int64(n)) {
				t.Errorf("%d: %d bytes, PartSize says %d", n, len(sealed), PartSize(int64(n)))
			}
			if got := read(t, NewPartOpener(testKey, bytes.NewReader(sealed))); !bytes.Equal(got, text) {
				t.Errorf("%d: another text by %s", n, how)
			}
			if got, err := OpenMessage(testKey, sealed, int64(n)); err != nil || !bytes.Equal(got, text) {
				t.Errorf("%d: another text by OpenMessage, %v", n, err)
			}
		}
	}
}

func TestTwoSealsOfOneTextShareNothing(t *testing.T) {
	text := randomText(100)
	a, b := Seal(testKey, text), Seal(testKey, text)
	if bytes.Equal(a[:saltSize], b[:saltSize]) || bytes.Equal(a[headerSize:], b[headerSize:]) {
		t.Error("the same salt or the same bytes twice")
	}
}

var errSource = errors.New("the connection broke")

func TestErrorsOfTheSourceAreKept(t *testing.T) {
	text := randomText(3 * most)
	sealed := Seal(testKey, text)
	for _, want := range []error{errSource, io.ErrUnexpectedEOF} {
		for _, at := range []int{0, headerSize, headerSize + recordSize, len(sealed) - 1, len(sealed)} {
			src := func() io.Reader { return io.MultiReader(bytes.NewReader(sealed[:at]), iotest.ErrReader(want)) }
			whole := max(0, at-headerSize) / recordSize * most
			for name, r := range map[string]io.Reader{"small": iotest.OneByteReader(NewOpener(testKey, src())), "WriteTo": NewOpener(testKey, src())} {
				var got bytes.Buffer
				if _, err := io.Copy(&got, r); err != want || !bytes.Equal(got.Bytes(), text[:whole]) {
					t.Errorf("%s: cut at %d: %d bytes, want %d; %v", name, at, got.Len(), whole, err)
				}
			}
		}
		for _, at := range []int{0, most, most + 1, len(text)} {
			src := io.MultiReader(bytes.NewReader(text[:at]), iotest.ErrReader(want))
			got, err := io.ReadAll(NewSealer(testKey, src))
			if err != want {
				t.Errorf("sealer, cut at %d: %v", at, err)
			}
			if _, err := Open(testKey, got); !errors.Is(err, ErrCut) {
				t.Errorf("sealed until the error at %d: %v", at, err)
			}
		}
	}
}
