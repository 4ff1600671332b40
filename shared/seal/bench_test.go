package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"io"
	"strconv"
	"strings"
	"testing"
)

var benchmarkSizes = []int{100, 10_000, 1 << 20, 16 << 20}

// BenchmarkCipher is AES-GCM alone on records of 64 KiB, the bound of the others.
func BenchmarkCipher(b *testing.B) {
	block, err := aes.NewCipher(make([]byte, 16))
	must(err)
	aead, err := cipher.NewGCM(block)
	must(err)
	record, nonce := make([]byte, recordSize), make([]byte, 12)
	b.SetBytes(int64(most))
	for b.Loop() {
		aead.Seal(record[:0], nonce, record[:most], nil)
	}
}

func BenchmarkSeal(b *testing.B) {
	for _, n := range benchmarkSizes {
		text := randomText(n)
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				Seal(testKey, text)
			}
		})
	}
}

// BenchmarkOpen includes a copy of the sealed bytes, since Open overwrites them.
func BenchmarkOpen(b *testing.B) {
	for _, n := range benchmarkSizes {
		sealed := Seal(testKey, randomText(n))
		again := make([]byte, len(sealed))
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				copy(again, sealed)
				if _, err := Open(testKey, again); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSealer(b *testing.B) {
	benchmarkStream(b, NewSealer, randomText)
}

func BenchmarkOpener(b *testing.B) {
	benchmarkStream(b, NewOpener, func(n int) []byte { return Seal(testKey, randomText(n)) })
}

func benchmarkStream(b *testing.B, open func(Key, io.Reader) io.Reader, of func(n int) []byte) {
	for _, n := range benchmarkSizes {
		src := of(n)
		p := make([]byte, recordSize)
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				r := open(testKey, bytes.NewReader(src))
				for err := error(nil); err == nil; {
					if _, err = r.Read(p); err != nil && err != io.EOF {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkMessage(b *testing.B) {
	for _, n := range benchmarkSizes[:3] {
		text := []byte(strings.Repeat(`{"status":"succeeded"}`, n/22+1)[:n])
		b.Run("seal/"+strconv.Itoa(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				SealMessage(testKey, text)
			}
		})
		sealed := SealMessage(testKey, text)
		again := make([]byte, len(sealed))
		b.Run("open/"+strconv.Itoa(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				copy(again, sealed)
				if _, err := OpenMessage(testKey, again, int64(n)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
