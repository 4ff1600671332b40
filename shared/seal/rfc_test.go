package seal

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"testing"
	"testing/iotest"
)

const walrus = "I am the walrus"

// examples are those of sections 3.1 and 3.2 of RFC 8188: other sizes of records and a key
// id, so they run below the check of the header.
var examples = []struct {
	name, key, keyID string
	recordSize       int
	firstText        int // bytes of text in the first record
	firstPad         int
	sealed           string
}{
	{"3.1", "yqdlZ-tYemfogSmv7Ws5PQ", "", 4096, len(walrus), 0,
		"I1BsxtFttlv3u_Oo94xnmwAAEAAA-NAVub2qFgBEuQKRapoZu-IxkIva3MEB1PD-ly8Thjg"},
	{"3.2", "BO3ZVPxUlnLORbVGMpbT1Q", "a1", 25, 7, 1,
		"uNCkWiNYzKTnBN9ji3-qWAAAABkCYTHOG8chz_gnvgOqdGYovxyjuqRyJFjEDyoF1Fvkj6hQPdPHI51OEUKEpgz3SsLWIqS_uA"},
}

func fromBase64(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestExamplesOfTheRFC(t *testing.T) {
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			ikm, sealed := fromBase64(t, e.key), fromBase64(t, e.sealed)
			salt := sealed[:saltSize]

			got := append([]byte(nil), salt...)
			got = binary.BigEndian.AppendUint32(got, uint32(e.recordSize))
			got = append(append(got, byte(len(e.keyID))), e.keyID...)
			header := len(got)
			r := newRecords(ikm, salt, e.recordSize)
			for text, pad := []byte(walrus), e.firstPad; len(text) > 0; pad = 0 {
				p := make([]byte, e.recordSize)
				n := copy(p, text[:min(e.firstText, len(text))])
				if len(text) > n { // all records but the first hold what they can
					e.firstText = r.most()
				}
				text = text[n:]
				got = append(got, p[:r.seal(p, n, pad, len(text) == 0)]...)
			}
			if !bytes.Equal(got, sealed) {
				t.Errorf("sealed\n%x, want\n%x", got, sealed)
			}

			o := newOpener(Key{}, bytes.NewReader(sealed[header:]))
			o.records = newRecords(ikm, salt, e.recordSize)
			if err := iotest.TestReader(o, []byte(walrus)); err != nil {
				t.Error(err)
			}
		})
	}
}
