package auth

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

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
	for name, c := range map[string]struct {
		tamper func(*http.Response)
		want   error
	}{
		"status":            {func(r *http.Response) { r.StatusCode = 201 }, ErrBadSignature},
		"instance":          {func(r *http.Response) { r.Header.Set(contract.HeaderInstance, "instance-2/start-1") }, ErrBadSignature},
		"instance too long": {func(r *http.Response) { r.Header.Set(contract.HeaderInstance, strings.Repeat("x", maxInstanceBytes+1)) }, ErrBadSignature},
		"instance missing":  {func(r *http.Response) { r.Header.Del(contract.HeaderInstance) }, ErrBadSignature},
		"instance twice":    {func(r *http.Response) { r.Header.Add(contract.HeaderInstance, here.String()) }, ErrBadSignature},
		"encoding":          {func(r *http.Response) { r.Header.Set(HeaderContentEncoding, "gzip") }, ErrBadSignature},
		"encoding twice":    {func(r *http.Response) { r.Header.Add(HeaderContentEncoding, Encoding) }, ErrBadSignature},
		"created":           {editAnswer("created=1790000000", "created=1790000001"), ErrBadSignature},
		"alg":               {editAnswer(`alg="hmac-sha256"`, `alg="none"`), ErrBadSignature},
		"tag":               {editAnswer(`;tag="colab-relay"`, ``), ErrBadSignature},
		"status left out":   {editAnswer(`"@status" `, ``), ErrBadSignature},
		"request left out":  {editAnswer(` "signature";req;key="sig1"`, ``), ErrBadSignature},
		"signature missing": {func(r *http.Response) { r.Header.Del(HeaderSignature) }, ErrUnsigned},
		"unsigned":          {func(r *http.Response) { r.Header = http.Header{"Content-Type": {"text/html"}} }, ErrUnsigned},
	} {
		t.Run(name, func(t *testing.T) {
			asked := send(t, "GET", testTarget, false, began)
			res := answered(t, asked, 200, true)
			c.tamper(res)
			err := asked.VerifyAnswer(res)
			if !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
		})
	}
}

func TestEncodingCannotBeAddedToAnAnswerWithoutABody(t *testing.T) {
	asked := send(t, "GET", testTarget, false, began)
	res := answered(t, asked, 200, false)
	res.Header.Set(HeaderContentEncoding, Encoding)
	if err := asked.VerifyAnswer(res); !errors.Is(err, ErrBadSignature) {
		t.Errorf("error %v", err)
	}
}

func TestAnswerToAnotherRequestIsRefused(t *testing.T) {
	first := send(t, "GET", testTarget, false, began)
	second := send(t, "GET", testTarget, false, began)
	res := answered(t, first, 200, true)
	// The signature that the relay sent counts, not one that the answer contains.
	if err := second.VerifyAnswer(res); !errors.Is(err, ErrBadSignature) {
		t.Errorf("error %v", err)
	}
}

func TestTheSignatureOfARequestIsInvalidForAnAnswer(t *testing.T) {
	asked := send(t, "GET", testTarget, false, began)
	res := &http.Response{StatusCode: 200, Header: asked.req.Header.Clone()}
	res.Header.Set(contract.HeaderInstance, here.String())
	if err := asked.VerifyAnswer(res); !errors.Is(err, ErrBadSignature) {
		t.Errorf("error %v", err)
	}
}

// Two headers and one header with a comma have the same signature base.
func TestInstanceSplitInTwoIsRefused(t *testing.T) {
	asked, secret := send(t, "GET", testTarget, false, began), testSecret(t)
	p := parameters{created: began.Unix(), keyID: secret.KeyID()}.write(answerComponents(false))
	h := http.Header{contract.HeaderInstance: {"a, b"}}
	setSignature(h, p, secret.mac(answerBase(200, "a, b", false, asked.mac, p)))
	if err := asked.VerifyAnswer(&http.Response{StatusCode: 200, Header: h}); err != nil {
		t.Fatal(err)
	}
	h[contract.HeaderInstance] = []string{"a", "b"}
	if err := asked.VerifyAnswer(&http.Response{StatusCode: 200, Header: h}); !errors.Is(err, ErrBadSignature) {
		t.Errorf("error %v", err)
	}
}
