package auth

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

func TestResponsePasses(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
	}{"result": {200, `{"status":"ok"}`}, "no body": {204, ""}, "error": {404, `{"error":{}}`}} {
		t.Run(name, func(t *testing.T) {
			asked := signed(t, "GET", testTarget, "", began)
			res := answered(t, asked.req, c.status, c.body)
			if err := NewSigner(testSecret(t)).VerifyResponse(res, []byte(c.body), asked.signature); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func editAnswer(from, to string) func(*http.Response) {
	return func(r *http.Response) {
		old := r.Header.Get(HeaderSignatureInput)
		changed := strings.Replace(old, from, to, 1)
		if changed == old {
			panic("nothing to change: " + from)
		}
		r.Header.Set(HeaderSignatureInput, changed)
	}
}

func TestTamperedResponseIsRefused(t *testing.T) {
	const body = `{"status":"ok"}`
	for name, c := range map[string]struct {
		tamper func(*http.Response)
		want   error
	}{
		"status":              {func(r *http.Response) { r.StatusCode = 201 }, ErrBadSignature},
		"instance":            {func(r *http.Response) { r.Header.Set(contract.HeaderInstance, "instance-2/start-1") }, ErrBadSignature},
		"start":               {func(r *http.Response) { r.Header.Set(contract.HeaderInstance, "instance-1/start-2") }, ErrBadSignature},
		"instance too long":   {func(r *http.Response) { r.Header.Set(contract.HeaderInstance, strings.Repeat("x", maxInstanceBytes+1)) }, ErrBadSignature},
		"instance missing":    {func(r *http.Response) { r.Header.Del(contract.HeaderInstance) }, ErrBadSignature},
		"instance twice":      {func(r *http.Response) { r.Header.Add(contract.HeaderInstance, here.String()) }, ErrBadSignature},
		"digest":              {func(r *http.Response) { r.Header.Set(HeaderContentDigest, digest(nil)) }, ErrBadSignature},
		"digest missing":      {func(r *http.Response) { r.Header.Del(HeaderContentDigest) }, ErrBadSignature},
		"digest twice":        {func(r *http.Response) { r.Header.Add(HeaderContentDigest, digest([]byte(body))) }, ErrBadSignature},
		"created":             {editAnswer("created=1790000000", "created=1790000001"), ErrBadSignature},
		"keyid":               {editAnswer(`keyid="5`, `keyid="6`), ErrBadSignature},
		"alg":                 {editAnswer(`alg="hmac-sha256"`, `alg="none"`), ErrBadSignature},
		"tag":                 {editAnswer(`;tag="colab-relay"`, ``), ErrBadSignature},
		"nonce added":         {editAnswer(`;keyid=`, `;nonce="AAAAAAAAAAAAAAAAAAAAAA";keyid=`), ErrBadSignature},
		"status left out":     {editAnswer(`"@status" `, ``), ErrBadSignature},
		"instance left out":   {editAnswer(` "executor-instance"`, ``), ErrBadSignature},
		"request left out":    {editAnswer(` "signature";req;key="sig1"`, ``), ErrBadSignature},
		"component added":     {editAnswer(`"@status"`, `"date" "@status"`), ErrBadSignature},
		"a signature of none": {func(r *http.Response) { r.Header.Set(HeaderSignature, writeMAC(make([]byte, 32))) }, ErrBadSignature},
		"signature twice":     {func(r *http.Response) { r.Header.Add(HeaderSignature, r.Header.Get(HeaderSignature)) }, ErrBadSignature},
		"signature missing":   {func(r *http.Response) { r.Header.Del(HeaderSignature) }, ErrUnsigned},
		"input missing":       {func(r *http.Response) { r.Header.Del(HeaderSignatureInput) }, ErrUnsigned},
		"unsigned":            {func(r *http.Response) { r.Header = http.Header{"Content-Type": {"text/html"}} }, ErrUnsigned},
	} {
		t.Run(name, func(t *testing.T) {
			asked := signed(t, "GET", testTarget, "", began)
			res := answered(t, asked.req, 200, body)
			c.tamper(res)
			err := NewSigner(testSecret(t)).VerifyResponse(res, []byte(body), asked.signature)
			if !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
		})
	}
}

func TestAChangedBodyIsDistinguishedFromAForgery(t *testing.T) {
	asked := signed(t, "GET", testTarget, "", began)
	res := answered(t, asked.req, 200, "body")
	err := NewSigner(testSecret(t)).VerifyResponse(res, []byte("recompressed"), asked.signature)
	if !errors.Is(err, ErrBadSignature) || !errors.Is(err, ErrDigest) {
		t.Errorf("error %v", err)
	}
}

func TestAnswerToAnotherRequestIsRefused(t *testing.T) {
	first := signed(t, "GET", testTarget, "", began)
	second := signed(t, "GET", testTarget, "", began)
	res := answered(t, first.req, 200, "body")
	// The signature that the relay sent counts, not one that the answer contains.
	if err := NewSigner(testSecret(t)).VerifyResponse(res, []byte("body"), second.signature); !errors.Is(err, ErrBadSignature) {
		t.Errorf("error %v", err)
	}
}

func TestTheSignatureOfARequestIsInvalidForAnAnswer(t *testing.T) {
	asked := signed(t, "GET", testTarget, "", began)
	res := &http.Response{StatusCode: 200, Header: asked.req.Header.Clone()}
	res.Header.Set(contract.HeaderInstance, here.String())
	if err := NewSigner(testSecret(t)).VerifyResponse(res, nil, asked.signature); !errors.Is(err, ErrBadSignature) {
		t.Errorf("error %v", err)
	}
}

func TestAnswerWithoutInstanceIsNotSigned(t *testing.T) {
	asked := signed(t, "GET", testTarget, "", began)
	for name, h := range map[string]http.Header{
		"none": {}, "empty": {contract.HeaderInstance: {""}}, "two": {contract.HeaderInstance: {"a/b", "c/d"}}, "no start": {contract.HeaderInstance: {"a"}},
	} {
		if err := NewSigner(testSecret(t)).SignResponse(h, asked.req, 200, nil, began); err == nil {
			t.Errorf("%s: signed", name)
		}
	}
}

// Two headers and one header with a comma have the same signature base.
func TestInstanceSplitInTwoIsRefused(t *testing.T) {
	asked := signed(t, "GET", testTarget, "", began)
	secret, h := testSecret(t), http.Header{contract.HeaderInstance: {"a, b"}, HeaderContentDigest: {digest(nil)}}
	m := &message{status: 200, header: h, request: &message{header: asked.req.Header}}
	if _, err := secret.sign(h, responseList(parameters{created: began.Unix(), keyID: secret.KeyID()}), m); err != nil {
		t.Fatal(err)
	}
	joined := &http.Response{StatusCode: 200, Header: h}
	if err := NewSigner(secret).VerifyResponse(joined, nil, asked.signature); err != nil {
		t.Fatal(err)
	}
	h[contract.HeaderInstance] = []string{"a", "b"}
	res := &http.Response{StatusCode: 200, Header: h}
	if err := NewSigner(testSecret(t)).VerifyResponse(res, nil, asked.signature); !errors.Is(err, ErrBadSignature) {
		t.Errorf("error %v", err)
	}
}
