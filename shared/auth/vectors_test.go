package auth

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
	"colabrelay/shared/seal"
)

var update = flag.Bool("update", false, "rewrite testdata/vectors.json")

const vectorsFile = "testdata/vectors.json"

// vectors is testdata/vectors.json: exchanges with all inputs and outputs.
type vectors struct {
	How    string   `json:"how"`
	Secret string   `json:"secret"`
	KeyID  string   `json:"key_id"`
	PRK    string   `json:"prk_hex"`
	Sign   string   `json:"sign_key_hex"`
	Cases  []vector `json:"cases"`
}

type vector struct {
	Name     string         `json:"name"`
	Request  requestVector  `json:"request"`
	Response responseVector `json:"response"`
}

type requestVector struct {
	Method  string `json:"method"`
	Path    string `json:"path"`
	Query   string `json:"query"` // as sent
	Sealed  bool   `json:"has_body"`
	Created int64  `json:"created"`
	Nonce   string `json:"nonce"`
	// Instance is covered by the signature unless Method is GET, and empty then.
	Instance string `json:"executor_instance,omitempty"`
	QueryKey string `json:"query_key_hex"`
	BodyKey  string `json:"body_key_hex"`
	Signed   signed `json:"signed"`
}

type responseVector struct {
	Status   int    `json:"status"`
	Instance string `json:"executor_instance"`
	Sealed   bool   `json:"has_body"`
	Created  int64  `json:"created"`
	BodyKey  string `json:"body_key_hex"`
	Signed   signed `json:"signed"`
}

// signed is what a signature is computed from, and its headers.
type signed struct {
	Base           string `json:"signature_base"`
	SignatureInput string `json:"signature_input"`
	Signature      string `json:"signature"`
}

const how = "Keys and signatures of colab-relay, protocol 5. prk = HKDF-Extract(SHA-256, salt \"colab-relay v5\", UTF-8 text of secret). " +
	"key(label, fields) = HKDF-Expand(prk, label, a zero byte, then each field after its length as 4 bytes big-endian; 32 bytes). " +
	"sign_key = key(\"sign\"); query_key = key(\"query\", method, path, nonce); body_key of a request = key(\"request\", nonce), of an answer = key(\"answer\", raw MAC of the answer). " +
	"key_id is the first 16 hex digits of the SHA-256 of secret. signature (RFC 9421, hmac-sha256) is base64 of HMAC-SHA256 with sign_key over signature_base. " +
	"A request of any method but GET names the executor it is meant for. A message with a body has Content-Encoding: aes128gcm. " +
	"The response is bound to the request: its base holds the request's signature."

// inputs are the inputs of the vectors; the rest is computed.
var inputs = []vector{
	{"submit", requestVector{Method: "POST", Path: "/v1/executions", Sealed: true, Created: 1790000000, Nonce: "AAECAwQFBgcICQoLDA0ODw", Instance: "i-1/s-1"},
		responseVector{Status: 200, Instance: "i-1/s-1", Sealed: true, Created: 1790000001}},
	{"query, no body", requestVector{Method: "GET", Path: "/v1/files", Query: "s=AAEC_w", Created: 1790000002, Nonce: "__________________________8"},
		responseVector{Status: 404, Instance: "i-1/s-1", Sealed: true, Created: 1790000002}},
	{"no body", requestVector{Method: "POST", Path: "/v1/shutdown", Created: 1790000004, Nonce: "ICEiIyQlJicoKSorLC0uLw", Instance: "i-2/s-2"},
		responseVector{Status: 409, Instance: "i-2/s-3", Sealed: true, Created: 1790000004}},
	{"escaped path, answer without a body", requestVector{Method: "PUT", Path: "/v1/uploads/a%2Fb", Query: "s=AA", Sealed: true, Created: 1790000003, Nonce: "EBESExQVFhcYGRobHB0eHw", Instance: "i-2/s-2"},
		responseVector{Status: 204, Instance: "i-2/s-2", Created: 1790000003}},
}

func TestVectorsAreWhatThisPackageWrites(t *testing.T) {
	want := compute(t)
	if *update {
		var text bytes.Buffer
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		must(t, enc.Encode(want))
		must(t, os.WriteFile(vectorsFile, text.Bytes(), 0o644))
	}
	if diff := gocmp.Diff(want, load(t)); diff != "" {
		t.Errorf("%s differs (-computed +file):\n%s", vectorsFile, diff)
	}
}

func load(t *testing.T) vectors {
	t.Helper()
	text, err := os.ReadFile(vectorsFile)
	must(t, err)
	var file vectors
	must(t, json.Unmarshal(text, &file))
	return file
}

// compute makes the vectors of inputs with the code of this package.
func compute(t *testing.T) vectors {
	t.Helper()
	secret := testSecret(t)
	out := vectors{
		How: how, Secret: testKey, KeyID: secret.KeyID(),
		PRK: hex.EncodeToString((*secret.hidden).prk), Sign: hex.EncodeToString((*secret.hidden).sign),
	}
	for _, v := range inputs {
		x := &Exchange{secret: secret, nonce: v.Request.Nonce}
		req := vectorRequest(t, v.Request)
		must(t, x.SignRequest(req, time.Unix(v.Request.Created, 0)))
		v.Request.QueryKey, v.Request.BodyKey = hexKey(x.QueryKey(v.Request.Method, v.Request.Path)), hexKey(x.BodyKey())
		base := requestBase(req, v.Request.Instance, v.Request.Sealed, params(req.Header))
		v.Request.Signed = signed{base, req.Header.Get(HeaderSignatureInput), req.Header.Get(HeaderSignature)}

		h := http.Header{contract.HeaderInstance: {v.Response.Instance}}
		markSealed(h, v.Response.Sealed)
		must(t, x.SignAnswer(h, v.Response.Status, time.Unix(v.Response.Created, 0)))
		v.Response.BodyKey = hexKey(x.AnswerKey())
		base = answerBase(v.Response.Status, v.Response.Instance, v.Response.Sealed, x.mac, params(h))
		v.Response.Signed = signed{base, h.Get(HeaderSignatureInput), h.Get(HeaderSignature)}
		out.Cases = append(out.Cases, v)
	}
	return out
}

func hexKey(key seal.Key) string { return hex.EncodeToString(key[:]) }

func params(h http.Header) string { return strings.TrimPrefix(h.Get(HeaderSignatureInput), "sig1=") }

func markSealed(h http.Header, sealed bool) {
	if sealed {
		h.Set(HeaderContentEncoding, Encoding)
	}
}

func vectorRequest(t *testing.T, v requestVector) *http.Request {
	t.Helper()
	target := v.Path
	if v.Query != "" {
		target += "?" + v.Query
	}
	req := readRequest(t, v.Method+" "+target+" HTTP/1.1\r\nHost: example.com\r\n\r\n")
	if v.Instance != "" {
		req.Header.Set(contract.HeaderInstance, v.Instance)
	}
	markSealed(req.Header, v.Sealed)
	return req
}

func macOf(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// The vectors follow the RFCs, checked without this package's code.
func TestVectorsFollowTheRFCs(t *testing.T) {
	file := load(t)
	sum := sha256.Sum256([]byte(file.Secret))
	if want := fmt.Sprintf("%x", sum[:8]); file.KeyID != want {
		t.Errorf("key_id %s, want %s", file.KeyID, want)
	}
	prk := macOf([]byte("colab-relay v5"), file.Secret) // RFC 5869 section 2.2
	equalHex(t, "prk", file.PRK, prk)
	sign := expand(prk, "sign\x00")
	equalHex(t, "sign key", file.Sign, sign)
	for _, v := range file.Cases {
		t.Run(v.Name, func(t *testing.T) {
			q, r := v.Request, v.Response
			equalHex(t, "query key", q.QueryKey, expand(prk, "query\x00"+field(q.Method)+field(q.Path)+field(q.Nonce)))
			equalHex(t, "body key", q.BodyKey, expand(prk, "request\x00"+field(q.Nonce)))
			mac := strings.Trim(strings.TrimPrefix(r.Signed.Signature, "sig1="), ":")
			raw, err := base64.StdEncoding.DecodeString(mac)
			must(t, err)
			equalHex(t, "key of the answer", r.BodyKey, expand(prk, "answer\x00"+field(string(raw))))

			for _, v := range []signed{q.Signed, r.Signed} {
				if want := "sig1=:" + base64.StdEncoding.EncodeToString(macOf(sign, v.Base)) + ":"; v.Signature != want {
					t.Errorf("signature %s, want %s", v.Signature, want)
				}
				if params := strings.TrimPrefix(v.SignatureInput, "sig1="); !strings.HasSuffix(v.Base, "\n\"@signature-params\": "+params) {
					t.Errorf("the base does not end with the parameters %s:\n%s", params, v.Base)
				}
			}
		})
	}
}

// expand is HKDF-Expand for one block (RFC 5869 section 2.3).
func expand(prk []byte, info string) []byte { return macOf(prk, info+"\x01") }

func field(text string) string { return string([]byte{0, 0, 0, byte(len(text))}) + text }

func equalHex(t *testing.T, what, got string, want []byte) {
	t.Helper()
	if got != hex.EncodeToString(want) {
		t.Errorf("%s is %s, want %x", what, got, want)
	}
}
