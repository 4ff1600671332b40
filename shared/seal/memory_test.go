package seal

import (
	"bytes"
	"crypto/sha256"
	"io"
	"runtime"
	"testing"
)

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
