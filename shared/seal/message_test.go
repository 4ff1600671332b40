package seal

import (
	"bytes"
	"compress/gzip"
	"errors"
	"strings"
	"testing"

	"colabrelay/shared/bounded"
)

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
