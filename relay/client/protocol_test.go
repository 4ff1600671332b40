package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
)

// unsigned answers every request but health as an executor does to a stranger.
func unsigned(t *testing.T, e *executor, protocol int) {
	t.Helper()
	e.setBefore(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == contract.PathHealth {
			writeJSON(w, http.StatusOK, contract.Health{Status: "ok", Protocol: protocol, Version: "\x1b[31mevil"})
		} else {
			writeJSON(w, http.StatusUnauthorized, refusalBody(contract.CodeUnauthorized))
		}
		return true
	})
}

func TestAnExecutorOfAnotherProtocolIsNamedAndWhatToUpdate(t *testing.T) {
	for protocol, step := range map[int]string{
		contract.Protocol - 1: "Update the executor",
		contract.Protocol + 1: "Update the relay",
	} {
		e := newExecutor(t, anything)
		c := e.acquainted(t)
		unsigned(t, e, protocol)
		_, err := c.Submit(t.Context(), contract.Submit{Code: "1"})
		got := wantKind(t, err, KindWrongProtocol)
		both := fmt.Sprintf("uses protocol %d and this relay protocol %d", protocol, contract.Protocol)
		if !strings.Contains(got.Message, both) || !strings.Contains(got.Message, " is older") || !strings.Contains(got.Hint, step) {
			t.Errorf("got %q, %q", got.Message, got.Hint)
		}
		if strings.Contains(got.Message+got.Hint, "evil") || !mayHaveArrived(err) {
			t.Errorf("got %q, %q; may have arrived: %v", got.Message, got.Hint, mayHaveArrived(err))
		}
	}
}

func TestAWrongSecretIsReportedUnderTheSameProtocol(t *testing.T) {
	e := newExecutor(t, anything)
	c := e.acquainted(t)
	unsigned(t, e, contract.Protocol)
	_, err := c.Submit(t.Context(), contract.Submit{Code: "1"})
	wantKind(t, err, KindWrongSecret)
}

func TestAHealthThatIsNotAnsweredChangesNothing(t *testing.T) {
	e := newExecutor(t, anything)
	c := e.acquainted(t)
	released := make(chan struct{})
	defer close(released)
	e.setBefore(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == contract.PathHealth {
			<-released
			return true
		}
		writeJSON(w, http.StatusUnauthorized, refusalBody(contract.CodeUnauthorized))
		return true
	})
	c.timeouts.answer = 100 * time.Millisecond
	_, err := c.Kernel(t.Context())
	wantKind(t, err, KindWrongSecret)
}

// A GET has the same form in protocol 1, so an executor of that signs its answer to it,
// without a start.
func TestAnExecutorThatNamesNoStartIsOfAnotherProtocol(t *testing.T) {
	e := newExecutor(t, anything)
	e.setBefore(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == contract.PathHealth {
			writeJSON(w, http.StatusOK, contract.Health{Status: "ok", Protocol: 1})
			return true
		}
		w.Header().Set(contract.HeaderInstance, "instance-1")
		signAsBefore(t, w.Header(), r, "{}")
		_, _ = io.WriteString(w, "{}")
		return true
	})
	c := e.client(t)
	_, err := c.Kernel(t.Context())
	got := wantKind(t, err, KindWrongProtocol)
	if !strings.Contains(got.Message, "protocol 1") || !strings.Contains(got.Hint, "Update the executor") || c.InstanceID() != "" {
		t.Errorf("got %q, %q; instance %q", got.Message, got.Hint, c.InstanceID())
	}
}

// signAsBefore signs an answer of status 200 as protocol 1 does, with an instance that
// names no start: package auth refuses to.
func signAsBefore(t *testing.T, h http.Header, asked *http.Request, body string) {
	secret := testSecret(t, testKey)
	sum := sha256.Sum256([]byte(body))
	h.Set(auth.HeaderContentDigest, "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":")
	params := fmt.Sprintf(`("@status" "content-digest" "executor-instance" "signature";req;key="sig1");created=1790000000;keyid=%q;alg="hmac-sha256";tag="colab-relay"`, secret.KeyID())
	mac := hmac.New(sha256.New, []byte(testKey))
	fmt.Fprintf(mac, "\"@status\": 200\n\"content-digest\": %s\n\"executor-instance\": %s\n\"signature\";req;key=\"sig1\": %s\n\"@signature-params\": %s",
		h.Get(auth.HeaderContentDigest), h.Get(contract.HeaderInstance), strings.TrimPrefix(asked.Header.Get(auth.HeaderSignature), "sig1="), params)
	h.Set(auth.HeaderSignatureInput, "sig1="+params)
	h.Set(auth.HeaderSignature, "sig1=:"+base64.StdEncoding.EncodeToString(mac.Sum(nil))+":")
}
