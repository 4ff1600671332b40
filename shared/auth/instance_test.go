package auth

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

// Method and Content-Encoding determine the form of a request. In the form of another method,
// a request would name no executor, or one that is not checked; in that of another body, its
// body could be added or removed.
func TestCorrectMACInAnotherFormIsUnauthorized(t *testing.T) {
	secret := testSecret(t)
	for _, method := range []string{"GET", "POST", "HEAD", "get"} {
		for _, sealed := range []bool{false, true} {
			for _, other := range []string{"GET", "POST"} {
				for _, otherSealed := range []bool{false, true} {
					req := unsigned(t, here.String(), "POST", testTarget, sealed)
					req.Method = method
					x := NewSigner(secret).NewExchange()
					p := parameters{created: began.Unix(), nonce: x.nonce, keyID: secret.KeyID()}.write(requestComponents(other, otherSealed))
					// The base of the claimed form: only the form is wrong.
					claimed := req.Clone(t.Context())
					base := strings.Replace(requestBase(withMethod(claimed, other), here.String(), otherSealed, p), `"@method": `+other, `"@method": `+method, 1)
					setSignature(req.Header, p, secret.mac(base))
					own := (method == "GET") == (other == "GET") && sealed == otherSealed
					_, err := newTestVerifier(t).Verify(req)
					if own && err != nil || !own && !errors.Is(err, ErrUnauthorized) {
						t.Errorf("%s (body %v) in the form of %s (body %v): error %v", method, sealed, other, otherSealed, err)
					}
				}
			}
		}
	}
}

func withMethod(r *http.Request, method string) *http.Request {
	r.Method = method
	return r
}

func TestARequestForAnotherExecutorIsReported(t *testing.T) {
	for instance, want := range map[string]error{
		"instance-1/start-1": nil,
		"instance-1/start-2": ErrNewStart,
		"instance-2/start-1": ErrNewInstance,
		"instance-2/start-2": ErrNewInstance,
		"start-1/instance-1": ErrNewInstance,
	} {
		for _, method := range []string{"POST", "HEAD"} {
			v := newTestVerifier(t)
			got := sendTo(t, instance, method, testTarget, false, began)
			if _, err := v.Verify(got.req); !errors.Is(err, want) {
				t.Errorf("%s for %s: error %v, want %v", method, instance, err, want)
			}
			if remembered := v.window.count == 1; remembered != (want == nil) {
				t.Errorf("%s for %s: %d nonces remembered", method, instance, v.window.count)
			}
		}
	}
}
