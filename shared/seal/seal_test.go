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

var readings = map[string]func(*testing.T, io.Reader) []byte{
	"whole":     readAll,
	"in pieces": func(t *testing.T, r io.Reader) []byte { return readAll(t, iotest.HalfReader(r)) },
}

var sources = map[string]func(io.Reader) io.Reader{
	"whole": func(r io.Reader) io.Reader { return r }, "half": iotest.HalfReader,
	"end with the data": iotest.DataErrReader,
}

func open(sealed []byte) ([]byte, error) {
	return io.ReadAll(NewOpener(testKey, bytes.NewReader(sealed)))
}

func TestWhatIsSealedOpensInEveryWay(t *testing.T) {
	for _, n := range lengths {
		text := randomText(n)
		sealed := map[string][]byte{"Seal": Seal(testKey, text), "Seal, compressed": Seal(testKey, make([]byte, n))}
		for how, read := range readings {
			sealed[how] = read(t, NewSealer(testKey, iotest.HalfReader(bytes.NewReader(text))))
		}
		for by, s := range sealed {
			want := text
			if by == "Seal, compressed" {
				want = make([]byte, n)
			} else if int64(len(s)) != Size(int64(n)) {
				t.Errorf("%d by %s: %d bytes, Size says %d", n, by, len(s), Size(int64(n)))
			}
			for how, read := range readings {
				for from, source := range sources {
					if !bytes.Equal(read(t, NewOpener(testKey, source(bytes.NewReader(s)))), want) {
						t.Errorf("%d by %s: another text, read %s from %s", n, by, how, from)
					}
				}
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
	compressed := bytes.Repeat(text[:most/8], 24) // longer than gzip's window, in one record
	for _, want := range []error{errSource, io.ErrUnexpectedEOF} {
		for _, text := range [][]byte{text, compressed} {
			sealed := Seal(testKey, text)
			for _, at := range []int{0, headerSize, headerSize + overhead, headerSize + recordSize, len(sealed) - 1, len(sealed)} {
				at = min(at, len(sealed))
				src := io.MultiReader(bytes.NewReader(sealed[:at]), iotest.ErrReader(want))
				if got, err := io.ReadAll(NewOpener(testKey, src)); err != want || !bytes.HasPrefix(text, got) {
					t.Errorf("cut at %d: %d bytes, %v", at, len(got), err)
				}
			}
		}
		for _, at := range []int{0, most - 1, most, len(text)} {
			src := io.MultiReader(bytes.NewReader(text[:at]), iotest.ErrReader(want))
			got, err := io.ReadAll(NewSealer(testKey, src))
			if err != want {
				t.Errorf("sealer, cut at %d: %v", at, err)
			}
			if _, err := open(got); !errors.Is(err, ErrCut) {
				t.Errorf("sealed until the error at %d: %v", at, err)
			}
		}
	}
}

func TestLengthsAreRoundedUp(t *testing.T) {
	for n, want := range map[int]int{ // of text in the records, with the leading byte and padding
		0: 256, 1: 256, 255: 256, 256: 512, 1024: 1280, 40_000: 40_192,
		most - 1: most, most - 2: most, // a full record takes no padding
		most: 1 << 16, 2*most - 1: 2 * most,
	} {
		records := (want + most - 1) / most
		if got := len(Seal(testKey, randomText(n))); got != headerSize+want+records*overhead {
			t.Errorf("%d bytes: %d sealed, want those of %d", n, got, want)
		}
	}
}

// made seals records whose texts include the delimiter and the padding, as only a holder of the
// key can.
func made(plain ...string) []byte {
	salt := newSalt()
	out := make([]byte, headerSize)
	putHeader(out, salt)
	r := newRecords(testKey[:], salt[:], recordSize)
	for _, p := range plain {
		r.advance()
		out = r.aead.Seal(out, r.nonce[:], []byte(p), nil)
	}
	return out
}

// Texts of a peer that has the key and breaks the rules.
func TestTextsThatBreakTheRulesAreRefused(t *testing.T) {
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
	for name, text := range map[string][]byte{
		"no leading byte":        nil,
		"unknown compression":    []byte("\x02text"),
		"not gzip":               []byte("\x01this is no gzip\x00\x00\x00\x00"),
		"shorter than gzip":      []byte("\x01gz"),
		"gzip, wrong length":     append([]byte{1}, changed(member("text"), -4, 1)...),
		"gzip, length says more": append([]byte{1}, changed(member("text"), -4, 64)...),
		"gzip, wrong checksum":   append([]byte{1}, changed(member("text"), -5, 1)...),
		"gzip, cut":              append(append([]byte{1}, member(string(randomText(300)))[:200]...), "\x2c\x01\x00\x00"...),
		"bytes after gzip":       append(append([]byte{1}, member("text")...), "\x04\x00\x00\x00"...),
		"gzip, length says 0":    append([]byte{1}, changed(bytes.Clone(bomb), -2, 0x10)...),
	} {
		if _, err := open(made(string(text) + "\x02")); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A header that asks for records of 4 GiB costs nothing, and a bomb no more than is read of it.
func TestForeignLengthsTakeNoMemory(t *testing.T) {
	header := append(make([]byte, saltSize), 0xff, 0xff, 0xff, 0xff, 0)
	bomb := Seal(testKey, make([]byte, 8<<20))
	for name, test := range map[string]struct {
		sealed []byte
		most   uint64
	}{"header": {header, 4 << 10}, "bomb": {bomb, 1 << 20}} {
		size := uint64(1 << 62)
		for range 10 { // pools are emptied at times
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _ = io.CopyN(io.Discard, NewOpener(testKey, bytes.NewReader(test.sealed)), 4<<20)
			runtime.ReadMemStats(&after)
			size = min(size, after.TotalAlloc-before.TotalAlloc)
		}
		if size > test.most {
			t.Errorf("%s: %d bytes allocated", name, size)
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
				_, err := io.Copy(h, NewOpener(testKey, bytes.NewReader(src)))
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

// FuzzOpen opens foreign bytes, and foreign texts sealed by a holder of the key. However they are
// read, all of it is the same.
func FuzzOpen(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add([]byte("\x00text\x02"), true)
	f.Add([]byte("\x01text\x02"), true)
	f.Add(Seal(testKey, nil), false)
	f.Add(Seal(testKey, randomText(2*most)), false)
	f.Add(Seal(otherKey, []byte("text")), false)
	f.Add(Seal(testKey, bytes.Repeat([]byte("text"), 1000)), false)
	f.Fuzz(func(t *testing.T, sealed []byte, plain bool) {
		if plain {
			sealed = made(string(sealed))
		}
		const max = 1 << 20
		read := func(src io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(NewOpener(testKey, src), max)) }
		text, err := read(bytes.NewReader(sealed))
		if err != nil && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrCut) {
			t.Errorf("error %v", err)
		}
		for how, source := range sources {
			got, again := read(source(bytes.NewReader(sealed)))
			if !bytes.Equal(got, text) || (err == nil) != (again == nil) {
				t.Errorf("%s: %d bytes and %v, before %d and %v", how, len(got), again, len(text), err)
			}
		}
		if err == nil && len(text) < max {
			if again, err := open(Seal(testKey, text)); err != nil || !bytes.Equal(again, text) {
				t.Errorf("sealed again: %d bytes of %d, %v", len(again), len(text), err)
			}
		}
	})
}

// writes counts the writes that it gets.
type writes struct {
	bytes.Buffer
	n int
}

func (w *writes) Write(b []byte) (int, error) {
	w.n++
	return w.Buffer.Write(b)
}

// Each write of a part of a file costs a system call or two on either side.
func TestEachRecordIsOneWrite(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789abcdef"), 3*recordSize/16)
	var sealed, opened writes
	if _, err := io.Copy(&sealed, NewSealer(Key{1}, bytes.NewReader(text))); err != nil || sealed.n != 4 {
		t.Errorf("four records were sealed with %d writes, %v", sealed.n, err)
	}
	if _, err := io.Copy(&opened, NewOpener(Key{1}, &sealed.Buffer)); err != nil || opened.n != 4 || !bytes.Equal(opened.Bytes(), text) {
		t.Errorf("four records were opened with %d writes, %v", opened.n, err)
	}
}
