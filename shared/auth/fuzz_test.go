package auth

import (
	"net/http"
	"testing"

	"github.com/dunglas/httpsfv"
)

// Reading any headers does not panic, and accepted ones are written in exactly one way, which
// a parser of structured fields reads too.
func FuzzReadSignature(f *testing.F) {
	good := send(f, "POST", testTarget, true, began).req.Header
	f.Add(good.Get(HeaderSignatureInput), good.Get(HeaderSignature))
	f.Add(`sig1=("@status" "executor-instance" "signature";req;key="sig1");created=-1;keyid="\"";alg=x`, "sig1=:AA==:")
	f.Add("sig1=(;;;", "sig1=?1, sig1=:/+:")
	f.Fuzz(func(t *testing.T, input, signature string) {
		h := http.Header{HeaderSignatureInput: {input}, HeaderSignature: {signature}}
		for _, sealed := range []bool{false, true} {
			for components, withNonce := range map[string]bool{
				requestComponents("GET", sealed): true, requestComponents("POST", sealed): true, answerComponents(sealed): false,
			} {
				got, err := readSignature(h, components, withNonce)
				if err != nil {
					continue
				}
				if "sig1="+got.write(components) != input || writeMAC(got.mac) != signature {
					t.Fatalf("accepted %q %q but writes %q", input, signature, got.write(components))
				}
				if _, err := httpsfv.UnmarshalDictionary([]string{input}); err != nil {
					t.Fatalf("accepted %q, which is not a dictionary: %v", input, err)
				}
			}
		}
	})
}
