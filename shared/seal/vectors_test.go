package seal

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	gocmp "github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite testdata/vectors.json")

const vectorsFile = "testdata/vectors.json"

// vectors is testdata/vectors.json: texts and what is made of them, for implementations in
// other languages.
type vectors struct {
	How   string   `json:"how"`
	Cases []vector `json:"cases"`
}

type vector struct {
	Name  string `json:"name"`
	Key   string `json:"key"`
	Salt  string `json:"salt"`
	Text  string `json:"text"`
	Times int    `json:"times"`
	// Sealed is empty if it is long.
	Sealed string `json:"sealed,omitempty"`
	Length int    `json:"length"`
	Digest string `json:"sha256"`
}

const how = "Sealed bytes of colab-relay: RFC 8188 (aes128gcm), record size 65536, no keyid. key is the input keying material. key, salt and sealed are hexadecimal; " +
	"the text is text, repeated times times. length and sha256 are of the sealed bytes. The text follows a byte that tells the compression: 0 none, 1 gzip (RFC 1952). " +
	"Both together are padded to a multiple of 256 bytes, if the last record has room."

// inputs are the inputs of the vectors; the rest is computed.
var inputs = []vector{
	{Name: "empty text"},
	{Name: "text", Text: walrus, Times: 1},
	{Name: "no padding", Text: "x", Times: 255},
	{Name: "one full record", Text: "x", Times: most - 1},
	{Name: "a record and a byte", Text: "x", Times: most},
	{Name: "three records", Text: "colab-relay ", Times: 12345},
}

func (v vector) text() []byte { return []byte(strings.Repeat(v.Text, v.Times)) }

// longest is the longest vector that is written in full.
const longest = 1 << 10

func TestVectorsAreWhatThisPackageWrites(t *testing.T) {
	want := vectors{How: how}
	for i, v := range inputs {
		key, salt := Key{byte(i), 1, 2, 3}, [saltSize]byte{byte(i), 4, 5, 6}
		sealed := readAll(t, newSealer(salt, key, uncompressed, bytes.NewReader(v.text())))
		sum := sha256.Sum256(sealed)
		v.Key, v.Salt, v.Length, v.Digest = hex.EncodeToString(key[:]), hex.EncodeToString(salt[:]), len(sealed), hex.EncodeToString(sum[:])
		if len(sealed) <= longest {
			v.Sealed = hex.EncodeToString(sealed)
		}
		want.Cases = append(want.Cases, v)
	}
	if *update {
		text, err := json.MarshalIndent(want, "", "  ")
		must(err)
		if err := os.WriteFile(vectorsFile, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := gocmp.Diff(want, load(t)); diff != "" {
		t.Errorf("%s differs (-computed +file):\n%s", vectorsFile, diff)
	}
}

func load(t *testing.T) vectors {
	t.Helper()
	text, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var file vectors
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	return file
}

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

			o := &recordReader{src: source{r: bytes.NewReader(sealed[header:])}, records: newRecords(ikm, salt, e.recordSize)}
			if err := iotest.TestReader(&stream{next: o.open}, []byte(walrus)); err != nil {
				t.Error(err)
			}
		})
	}
}
