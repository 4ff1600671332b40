package seal

import (
	"bytes"
	"crypto/sha256"
	"io"
	"runtime"
	"strings"
	"testing"

	"colabrelay/shared/tier"
)

// zeros yields as many zero bytes.
type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (int, error) {
	n := int(min(z.left, int64(len(p))))
	z.left -= int64(n)
	clear(p[:n])
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// counted counts the bytes that pass.
type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func TestAStreamOfAGibibyteTakesConstantMemory(t *testing.T) {
	tier.Long(t)
	const length = 1 << 30
	for name, copied := range map[string]func(io.Writer, io.Reader) (int64, error){
		"WriteTo": io.Copy,
		"Read": func(w io.Writer, r io.Reader) (int64, error) {
			return io.CopyBuffer(w, struct{ io.Reader }{r}, make([]byte, 2*recordSize))
		},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		line := &counted{r: NewPartSealer(testKey, &zeros{length})}
		n, err := copied(io.Discard, NewPartOpener(testKey, line))
		runtime.ReadMemStats(&after)
		if n != length || err != nil || line.n != PartSize(length) {
			t.Errorf("%s: %d bytes, %d sealed, %v", name, n, line.n, err)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 2<<20 {
			t.Errorf("%s: %d bytes of memory were allocated", name, grown)
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

func TestAllocationsOfAMessage(t *testing.T) {
	const fixed = 2 << 10 // bytes that every call may take
	for _, n := range []int{0, 100, 1 << 10, 10 << 10, 100 << 10, 1 << 20} {
		random := randomText(n)
		packs := []byte(strings.Repeat("colab-relay ", n/12+1)[:n])
		streamed := func(r io.Reader) { _, _ = io.Copy(io.Discard, r) }
		for name, c := range map[string]struct {
			prepare func() []byte
			f       func([]byte)
			size    int // bytes that are needed
			count   uint64
		}{
			"Seal":                    {func() []byte { return random }, func(b []byte) { Seal(testKey, b) }, n + n/64, 5},
			"Open":                    {func() []byte { return Seal(testKey, random) }, func(b []byte) { _, _ = Open(testKey, b) }, 0, 3},
			"SealMessage":             {func() []byte { return random }, func(b []byte) { SealMessage(testKey, b) }, n + n/64, 5},
			"SealMessage, compressed": {func() []byte { return packs }, func(b []byte) { SealMessage(testKey, b) }, min(n, 1<<10+n/64), 5},
			"OpenMessage":             {func() []byte { return SealMessage(testKey, random) }, func(b []byte) { _, _ = OpenMessage(testKey, b, 1<<20) }, 0, 3},
			"OpenMessage, compressed": {func() []byte { return SealMessage(testKey, packs) }, func(b []byte) { _, _ = OpenMessage(testKey, b, 1<<20) }, n, 6},
			"NewSealer":               {func() []byte { return random }, func(b []byte) { streamed(NewSealer(testKey, bytes.NewReader(b))) }, 0, 8},
			"NewOpener":               {func() []byte { return Seal(testKey, random) }, func(b []byte) { streamed(NewOpener(testKey, bytes.NewReader(b))) }, 0, 8},
		} {
			source := c.prepare()
			again := make([]byte, len(source))
			size, count := allocated(func() { c.f(again[:copy(again, source)]) })
			// A slice may be rounded up by an eighth.
			if most := uint64(c.size + c.size/8 + fixed); size > most {
				t.Errorf("%s of %d bytes: %d bytes allocated, at most %d expected", name, n, size, most)
			}
			if count > c.count {
				t.Errorf("%s of %d bytes: %d allocations, at most %d expected", name, n, count, c.count)
			}
		}
	}
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
				if (worker+round)%3 == 0 {
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
