package auth

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// The method determines the form of a request. In the other form, a request would name no
// executor, or one that is not checked.
func TestCorrectMACInTheFormOfAnotherMethodIsUnauthorized(t *testing.T) {
	secret := testSecret(t)
	for method, list := range map[string]listOf{
		"GET": changeList, "POST": getList, "PUT": getList, "DELETE": getList, "HEAD": getList, "OPTIONS": getList, "get": getList,
	} {
		t.Run(method, func(t *testing.T) {
			req := signed(t, "POST", testTarget, "", began).req
			req.Method = method
			p := parameters{created: began.Unix(), nonce: randomText(freshBytes), keyID: secret.KeyID()}
			if _, err := secret.sign(req.Header, list(p), requestMessage(req)); err != nil {
				t.Fatal(err)
			}
			if _, err := newTestVerifier(t).Verify(req); !errors.Is(err, ErrUnauthorized) {
				t.Errorf("in the other form: error %v", err)
			}
			if _, err := secret.sign(req.Header, requestList(method)(p), requestMessage(req)); err != nil {
				t.Fatal(err)
			}
			if _, err := newTestVerifier(t).Verify(req); err != nil {
				t.Errorf("in its own form: error %v", err)
			}
		})
	}
}

func TestARequestForAnotherExecutorIsReported(t *testing.T) {
	for instance, want := range map[string]error{
		"instance-1/start-1": nil,
		"instance-1/start-2": ErrNewStart,
		"instance-2/start-1": ErrNewInstance,
		"instance-2/start-2": ErrNewInstance,
		"start-1/instance-1": ErrNewInstance,
	} {
		for _, method := range []string{"POST", "PUT", "DELETE", "HEAD"} {
			v := newTestVerifier(t)
			got := signedFor(t, instance, method, testTarget, "", began)
			if _, err := v.Verify(got.req); !errors.Is(err, want) {
				t.Errorf("%s for %s: error %v, want %v", method, instance, err, want)
			}
			if remembered := v.window.count == 1; remembered != (want == nil) {
				t.Errorf("%s for %s: %d nonces remembered", method, instance, v.window.count)
			}
		}
	}
}

// The clock is checked first, because a relay can correct its clock by the answer of any
// executor.
func TestAWrongClockIsReportedBeforeAnotherExecutor(t *testing.T) {
	got := signedFor(t, "instance-2/start-2", "POST", testTarget, "", began.Add(-time.Hour))
	if _, err := newTestVerifier(t).Verify(got.req); !errors.Is(err, ErrClockSkew) {
		t.Errorf("error %v", err)
	}
}

func TestChangeThatNamesNoExecutorIsNotSigned(t *testing.T) {
	for _, instance := range []string{"", "instance-1", "/", "a/b/c", strings.Repeat("x", maxInstanceBytes)} {
		req, err := http.NewRequest("POST", testTarget, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(contract.HeaderInstance, instance)
		if _, err := NewSigner(testSecret(t)).SignRequest(req, nil, began); err == nil {
			t.Errorf("signed for %.20q", instance)
		}
	}
}

// The nonces are lost in a restart. A request captured before is refused afterwards, even if
// it was signed for a later time.
func TestACapturedRequestIsInvalidAfterARestart(t *testing.T) {
	restarted := contract.Instance{ID: here.ID, Start: "start-2"}
	for _, ahead := range []time.Duration{-contract.ClockSkew, 0, contract.ClockSkew} {
		now := began
		captured := signed(t, "POST", testTarget, "", began.Add(ahead))
		if _, err := newTestVerifier(t).Verify(captured.req); err != nil {
			t.Fatal(err)
		}
		after := NewVerifier(testSecret(t), restarted, func() time.Time { return now })
		for ; now.Before(began.Add(3 * contract.ClockSkew)); now = now.Add(7 * time.Second) {
			if _, err := after.Verify(captured.req); !errors.Is(err, ErrNewStart) && !errors.Is(err, ErrClockSkew) {
				t.Fatalf("signed %v ahead, %v later: error %v", ahead, now.Sub(began), err)
			}
		}
	}
}
