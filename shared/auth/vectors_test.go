package auth

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	gocmp "github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
)

var update = flag.Bool("update", false, "rewrite testdata/vectors.json")

// embedded lets cmp look into the embedded part of a vector.
var embedded = gocmp.AllowUnexported(requestVector{}, responseVector{})

const vectorsFile = "testdata/vectors.json"

// vectors is testdata/vectors.json: exchanges with all inputs and outputs.
type vectors struct {
	How    string   `json:"how"`
	Secret string   `json:"secret"`
	KeyID  string   `json:"key_id"`
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
	Query   string `json:"query"`
	Body    string `json:"body_base64"`
	Created int64  `json:"created"`
	Nonce   string `json:"nonce"`
	// Instance is covered by the signature unless Method is GET, and empty then.
	Instance string `json:"executor_instance,omitempty"`
	signedVector
}

type responseVector struct {
	Status   int    `json:"status"`
	Instance string `json:"executor_instance"`
	Body     string `json:"body_base64"`
	Created  int64  `json:"created"`
	signedVector
}

type signedVector struct {
	Base           string `json:"signature_base"`
	ContentDigest  string `json:"content_digest"`
	SignatureInput string `json:"signature_input"`
	Signature      string `json:"signature"`
}

const how = "Signatures of colab-relay, protocol 2 (RFC 9421, hmac-sha256). The key is the UTF-8 text of secret; key_id is the first 16 hex digits of its SHA-256. " +
	"content_digest is of the body (RFC 9530). signature is base64 of HMAC-SHA256 over signature_base. A request of any method but GET names the executor it is meant for: executor_instance is in its base. " +
	"The response is bound to the request: its base holds the request's signature."

// inputs are the inputs of the vectors; the rest is computed.
var inputs = []vector{
	{"submit", requestVector{Method: "POST", Path: "/v1/executions", Body: encoded(`{"request_id":"r-1","code":"1+1"}`), Created: 1790000000, Nonce: "AAECAwQFBgcICQoLDA0ODw", Instance: "i-1/s-1"},
		responseVector{Status: 200, Instance: "i-1/s-1", Body: encoded(`{"status":"succeeded"}`), Created: 1790000001}},
	{"query, no body", requestVector{Method: "GET", Path: "/v1/files", Query: "path=%2Fcontent%2Fa+b", Created: 1790000002, Nonce: "__________________________8"},
		responseVector{Status: 404, Instance: "i-1/s-1", Body: encoded(`{"error":{"code":"not_found"}}`), Created: 1790000002}},
	{"no body", requestVector{Method: "POST", Path: "/v1/shutdown", Created: 1790000004, Nonce: "ICEiIyQlJicoKSorLC0uLw", Instance: "i-2/s-2"},
		responseVector{Status: 409, Instance: "i-2/s-3", Body: encoded(`{"error":{"code":"new_start"}}`), Created: 1790000004}},
	{"escaped path, binary bodies", requestVector{Method: "PUT", Path: "/v1/uploads/a%2Fb", Query: "offset=0", Body: encoded("\x00\xff\r\n"), Created: 1790000003, Nonce: "EBESExQVFhcYGRobHB0eHw", Instance: "i-2/s-2"},
		responseVector{Status: 204, Instance: "i-2/s-2", Created: 1790000003}},
}

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func decoded(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestVectorsAreWhatThisPackageWrites(t *testing.T) {
	want := compute(t)
	if *update {
		text, err := json.MarshalIndent(want, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(vectorsFile, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := gocmp.Diff(want, load(t), embedded); diff != "" {
		t.Errorf("%s differs (-computed +file):\n%s", vectorsFile, diff)
	}
}

// The vectors follow the rules of the RFCs, checked without this package's code.
func TestVectorsFollowTheRFCs(t *testing.T) {
	file := load(t)
	sum := sha256.Sum256([]byte(file.Secret))
	if want := fmt.Sprintf("%x", sum[:8]); file.KeyID != want {
		t.Errorf("key_id %s, want %s", file.KeyID, want)
	}
	for _, v := range file.Cases {
		t.Run(v.Name, func(t *testing.T) {
			q, r := v.Request, v.Response
			lines := []string{`"@method": ` + q.Method, `"@path": ` + q.Path, `"@query": ?` + q.Query}
			if q.Method != "GET" {
				lines = append(lines, `"executor-instance": `+q.Instance)
			}
			holdsByItself(t, file.Secret, q.Body, q.signedVector, append(lines, `"content-digest": `+q.ContentDigest))
			holdsByItself(t, file.Secret, r.Body, r.signedVector, []string{
				`"@status": ` + strconv.Itoa(r.Status), `"content-digest": ` + r.ContentDigest,
				`"executor-instance": ` + r.Instance, `"signature";req;key="sig1": ` + strings.TrimPrefix(q.Signature, "sig1="),
			})
		})
	}
}

func holdsByItself(t *testing.T, secret, body string, v signedVector, lines []string) {
	t.Helper()
	sum := sha256.Sum256(decoded(t, body))
	if want := "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"; v.ContentDigest != want {
		t.Errorf("content_digest %s, want %s", v.ContentDigest, want)
	}
	base := strings.Join(append(lines, `"@signature-params": `+strings.TrimPrefix(v.SignatureInput, "sig1=")), "\n")
	if v.Base != base {
		t.Errorf("signature_base\n%s\nwant\n%s", v.Base, base)
	}
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(base))
	if want := "sig1=:" + base64.StdEncoding.EncodeToString(h.Sum(nil)) + ":"; v.Signature != want {
		t.Errorf("signature %s, want %s", v.Signature, want)
	}
}

func TestVectorsPassVerification(t *testing.T) {
	file := load(t)
	secret, err := NewSecret(file.Secret)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range file.Cases {
		t.Run(v.Name, func(t *testing.T) {
			req := vectorRequest(t, v.Request)
			headers(req.Header, v.Request.signedVector)
			instance, err := contract.ParseInstance(cmp.Or(v.Request.Instance, "i-1/s-1"))
			if err != nil {
				t.Fatal(err)
			}
			created := time.Unix(v.Request.Created, 0)
			if _, err := NewVerifier(secret, instance, func() time.Time { return created }).Verify(req); err != nil {
				t.Error(err)
			}
			res := &http.Response{StatusCode: v.Response.Status, Header: http.Header{contract.HeaderInstance: {v.Response.Instance}}}
			headers(res.Header, v.Response.signedVector)
			if err := NewSigner(secret).VerifyResponse(res, decoded(t, v.Response.Body), v.Request.Signature); err != nil {
				t.Error(err)
			}
		})
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

// compute makes the vectors of inputs with the code of this package.
func compute(t *testing.T) vectors {
	t.Helper()
	secret := testSecret(t)
	out := vectors{How: how, Secret: testKey, KeyID: secret.KeyID()}
	for _, v := range inputs {
		req := vectorRequest(t, v.Request)
		p := parameters{created: v.Request.Created, nonce: v.Request.Nonce, keyID: secret.KeyID()}
		signature, err := NewSigner(secret).signRequest(req, decoded(t, v.Request.Body), p)
		if err != nil {
			t.Fatal(err)
		}
		v.Request.signedVector = result(t, req.Header, requestList(req.Method)(p), requestMessage(req))

		h := http.Header{contract.HeaderInstance: {v.Response.Instance}}
		created := time.Unix(v.Response.Created, 0)
		if err := NewSigner(secret).SignResponse(h, req, v.Response.Status, decoded(t, v.Response.Body), created); err != nil {
			t.Fatal(err)
		}
		asked := &message{header: http.Header{HeaderSignature: {signature}}}
		p = parameters{created: v.Response.Created, keyID: secret.KeyID()}
		v.Response.signedVector = result(t, h, responseList(p), &message{status: v.Response.Status, header: h, request: asked})
		out.Cases = append(out.Cases, v)
	}
	return out
}

func vectorRequest(t *testing.T, v requestVector) *http.Request {
	t.Helper()
	target := v.Path
	if v.Query != "" {
		target += "?" + v.Query
	}
	body := decoded(t, v.Body)
	req := readRequest(t, v.Method+" "+target+" HTTP/1.1\r\nHost: example.com\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+string(body))
	if v.Instance != "" {
		req.Header.Set(contract.HeaderInstance, v.Instance)
	}
	if got, err := io.ReadAll(req.Body); err != nil || string(got) != string(body) {
		t.Fatalf("body %q, %v", got, err)
	}
	return req
}

func headers(h http.Header, v signedVector) {
	h.Set(HeaderContentDigest, v.ContentDigest)
	h.Set(HeaderSignatureInput, v.SignatureInput)
	h.Set(HeaderSignature, v.Signature)
}

func result(t *testing.T, h http.Header, list httpsfv.InnerList, m *message) signedVector {
	t.Helper()
	base, err := signatureBase(list, m)
	if err != nil {
		t.Fatal(err)
	}
	return signedVector{base, h.Get(HeaderContentDigest), h.Get(HeaderSignatureInput), h.Get(HeaderSignature)}
}
