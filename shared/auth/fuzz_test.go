package auth

import (
	"net/http"
	"testing"

	"github.com/dunglas/httpsfv"

	"colabrelay/shared/contract"
)

// Reading any headers does not panic, and accepted ones are written in exactly one way.
func FuzzReadSignature(f *testing.F) {
	good := signed(f, "POST", testTarget, "body", began).req.Header
	f.Add(good.Get(HeaderSignatureInput), good.Get(HeaderSignature))
	f.Add(`sig1=("@status" "signature";req;key="sig1");created=-1;keyid="\"";alg=x`, "sig1=:AA==:")
	f.Add("sig1=(;;;", "sig1=?1, sig1=:/+:")
	f.Fuzz(func(t *testing.T, input, signature string) {
		h := http.Header{HeaderSignatureInput: {input}, HeaderSignature: {signature}}
		for _, list := range []listOf{getList, changeList, responseList} {
			got, err := readSignature(h, list)
			if err != nil {
				continue
			}
			written, err := httpsfv.Marshal(list(got.parameters))
			if err != nil || "sig1="+written != input || writeMAC(got.mac) != signature {
				t.Fatalf("accepted %q %q but writes %q", input, signature, written)
			}
		}
	})
}

// No fuzzed request is accepted, because the fuzzer does not have the key.
func FuzzVerify(f *testing.F) {
	good, err := http.NewRequest("POST", testTarget, nil)
	if err != nil {
		f.Fatal(err)
	}
	good.Header.Set(contract.HeaderInstance, here.String())
	// A fixed nonce: each of the fuzzer's processes must know the seed, so that it is
	// a replay in all of them.
	p := parameters{created: began.Unix(), nonce: "AAECAwQFBgcICQoLDA0ODw", keyID: testSecret(f).KeyID()}
	if _, err := NewSigner(testSecret(f)).signRequest(good, nil, p); err != nil {
		f.Fatal(err)
	}
	v := newTestVerifier(f)
	if _, err := v.Verify(good); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Method, good.URL.RawQuery, here.String(), good.Header.Get(HeaderSignatureInput), good.Header.Get(HeaderSignature), good.Header.Get(HeaderContentDigest))
	f.Fuzz(func(t *testing.T, method, query, instance, input, signature, digest string) {
		req := good.Clone(t.Context())
		req.Method, req.URL.RawQuery = method, query
		req.Header = http.Header{HeaderSignatureInput: {input}, HeaderSignature: {signature}, HeaderContentDigest: {digest}, contract.HeaderInstance: {instance}}
		if _, err := v.Verify(req); err == nil {
			t.Fatal("an unsigned request passed")
		}
	})
}

// Parsing any text does not panic, and an accepted pairing can be printed and parsed again.
func FuzzParsePairing(f *testing.F) {
	f.Add(Pairing{URL: "https://example.com", Secret: testSecret(f)}.String())
	f.Add("relay pair 'colab-relay:eyJ2IjoxfQ=='")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePairing(text)
		if err != nil {
			return
		}
		again, err := ParsePairing(p.String())
		if err != nil || again.URL != p.URL || !again.Secret.Equal(p.Secret) {
			t.Fatalf("does not survive its own text: %v", err)
		}
	})
}
