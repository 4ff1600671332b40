package seal

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"colabrelay/shared/bounded"
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

func TestMessagesOpen(t *testing.T) {
	for _, n := range lengths {
		for what, text := range map[string][]byte{"random": randomText(n), "same": bytes.Repeat([]byte("a"), n)} {
			sealed := SealMessage(testKey, text)
			if got, err := OpenMessage(testKey, sealed, int64(n)); err != nil || !bytes.Equal(got, text) {
				t.Errorf("%d %s bytes: another text, %v", n, what, err)
			}
			if n == 0 {
				continue
			}
			if _, err := OpenMessage(testKey, SealMessage(testKey, text), int64(n-1)); !errors.Is(err, bounded.ErrTooLong) {
				t.Errorf("%d %s bytes, one more than allowed: %v", n, what, err)
			}
		}
	}
}

func TestLengthsOfMessagesAreRoundedUp(t *testing.T) {
	for n, want := range map[int]int64{
		0: 256, 1: 256, 255: 256, 256: 512, 1024: 1280, 40_000: 40_192,
		most - 1: most, most - 2: most, // a full record takes no padding
		most: 1 << 16, 2*most - 1: 2 * most,
	} {
		sealed := SealMessage(testKey, randomText(n))
		if int64(len(sealed)) != Size(want) {
			t.Errorf("%d bytes: %d sealed, want those of %d", n, len(sealed), want)
		}
	}
}

// Messages of a peer that has the key and breaks the rules.
func TestMessagesThatBreakTheRulesAreRefused(t *testing.T) {
	member := func(text string) []byte {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		_, _ = z.Write([]byte(text))
		_ = z.Close()
		return out.Bytes()
	}
	changed := func(b []byte, i int, by byte) []byte {
		if i < 0 {
			i += len(b)
		}
		b[i] ^= by
		return b
	}
	bomb := member(strings.Repeat("\x00", 1<<20))
	for name, c := range map[string]struct {
		text []byte
		want error
	}{
		"no leading byte":           {nil, ErrInvalid},
		"unknown compression":       {[]byte("\x02text"), ErrInvalid},
		"not gzip":                  {[]byte("\x01this is no gzip\x00\x00\x00\x00"), ErrInvalid},
		"shorter than gzip":         {[]byte("\x01gz"), ErrInvalid},
		"gzip, wrong length":        {append([]byte{1}, changed(member("text"), -4, 1)...), ErrInvalid},
		"gzip, length says more":    {append([]byte{1}, changed(member("text"), -4, 64)...), ErrInvalid},
		"gzip, length out of reach": {append([]byte{1}, changed(member("text"), -2, 1)...), ErrInvalid},
		"gzip, wrong checksum":      {append([]byte{1}, changed(member("text"), -5, 1)...), ErrInvalid},
		"gzip, cut":                 {append(append([]byte{1}, member(string(randomText(300)))[:200]...), "\x2c\x01\x00\x00"...), ErrInvalid},
		"two members":               {append(append([]byte{1}, member("te")...), member("xt")...), ErrInvalid},
		"bytes after gzip":          {append(append([]byte{1}, member("text")...), "\x04\x00\x00\x00"...), ErrInvalid},
		"bomb":                      {append([]byte{1}, bomb...), bounded.ErrTooLong},
		"bomb, length says 0":       {append([]byte{1}, changed(bytes.Clone(bomb), -2, 0x10)...), ErrInvalid},
	} {
		if _, err := OpenMessage(testKey, Seal(testKey, c.text), 1<<20-1); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// allocated returns the bytes and the count of allocations of one call of f, the least of
// some calls: pools are emptied at times.
func allocated(f func()) (size, count uint64) {
	size, count = 1<<62, 1<<62
	for range 10 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		size, count = min(size, after.TotalAlloc-before.TotalAlloc), min(count, after.Mallocs-before.Mallocs)
	}
	return size, count
}

// A header that asks for records of 4 GiB, or a length of 4 GiB in gzip, costs nothing.
func TestRefusedLengthsTakeNoMemory(t *testing.T) {
	header := append(make([]byte, saltSize), 0xff, 0xff, 0xff, 0xff, 0)
	bomb := append([]byte{gzipped}, "\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff\xff\xff\xff\xff"...)
	sealed := Seal(testKey, bomb)
	again := make([]byte, len(sealed))
	for name, f := range map[string]func() error{
		"Open":      func() error { _, err := Open(testKey, header); return err },
		"NewOpener": func() error { _, err := io.Copy(io.Discard, NewOpener(testKey, bytes.NewReader(header))); return err },
		"OpenMessage, over max": func() error {
			_, err := OpenMessage(testKey, again[:copy(again, sealed)], 1<<20)
			return err
		},
		"OpenMessage, out of reach": func() error {
			_, err := OpenMessage(testKey, again[:copy(again, sealed)], 1<<40)
			return err
		},
	} {
		var err error
		size, _ := allocated(func() { err = f() })
		if err == nil || size > 4<<10 {
			t.Errorf("%s: %d bytes allocated, %v", name, size, err)
		}
	}
}

// A stream gives its buffer back after an end or an error, and does not touch it again.
func TestBuffersAreGivenBackOnce(t *testing.T) {
	text := randomText(3 * most)
	sealed := Seal(testKey, text)
	sum := sha256.Sum256(text)
	done := make(chan error)
	for worker := range 8 {
		go func() {
			for round := range 20 {
				src := sealed
				if (worker+round)%3 == 0 { // cut
					src = sealed[:len(sealed)-round-1]
				}
				h := sha256.New()
				_, err := io.Copy(h, struct{ io.Reader }{NewOpener(testKey, bytes.NewReader(src))})
				if whole := len(src) == len(sealed); whole != (err == nil) || whole && [32]byte(h.Sum(nil)) != sum {
					done <- io.ErrNoProgress
					return
				}
			}
			done <- nil
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error("another text, or none:", err)
		}
	}
}

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
