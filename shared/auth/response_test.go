package auth

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

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

func TestAnAnswerThatIsNoneToTheRequestIsRefused(t *testing.T) {
	asked := send(t, "GET", testTarget, false, began)
	without := answered(t, asked, 200, false)
	without.Header.Set(HeaderContentEncoding, Encoding)
	request := &http.Response{StatusCode: 200, Header: asked.req.Header.Clone()}
	request.Header.Set(contract.HeaderInstance, here.String())
	for name, res := range map[string]*http.Response{
		"an encoding without a body": without, "the request's signature": request,
		"to another request": answered(t, send(t, "GET", testTarget, false, began), 200, true),
	} {
		if err := asked.VerifyAnswer(res); !errors.Is(err, ErrBadSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Two headers and one header with a comma have the same signature base.
func TestInstanceSplitInTwoIsRefused(t *testing.T) {
	asked, secret := send(t, "GET", testTarget, false, began), testSecret(t)
	p := parameters{created: began.Unix(), keyID: secret.KeyID()}.write(answerComponents(false))
	h := http.Header{contract.HeaderInstance: {"a, b"}}
	setSignature(h, p, secret.mac(answerBase(200, "a, b", false, asked.mac, p)))
	must(t, asked.VerifyAnswer(&http.Response{StatusCode: 200, Header: h}))
	h[contract.HeaderInstance] = []string{"a", "b"}
	if err := asked.VerifyAnswer(&http.Response{StatusCode: 200, Header: h}); !errors.Is(err, ErrBadSignature) {
		t.Errorf("error %v", err)
	}
}

func TestClock(t *testing.T) {
	for name, c := range map[string]struct {
		created time.Time
		want    error
	}{
		"now":            {began, nil},
		"oldest":         {began.Add(-contract.ClockSkew), nil},
		"too old":        {began.Add(-contract.ClockSkew - time.Second), ErrClockSkew},
		"farthest ahead": {began.Add(contract.ClockSkew), nil},
		"too far ahead":  {began.Add(contract.ClockSkew + time.Second), ErrClockSkew},
		"an hour off":    {began.Add(-time.Hour), ErrClockSkew},
		"long ago":       {time.Unix(0, 0), ErrClockSkew},
	} {
		for _, method := range []string{"GET", "POST"} {
			t.Run(method+" "+name, func(t *testing.T) {
				if _, err := newTestVerifier(t).Verify(send(t, method, testTarget, false, c.created).req); !errors.Is(err, c.want) {
					t.Errorf("error %v, want %v", err, c.want)
				}
			})
		}
	}
}

func TestReplayIsRefusedForAsLongAsItsTimeWouldPass(t *testing.T) {
	for _, ahead := range []time.Duration{-contract.ClockSkew, 0, contract.ClockSkew} {
		now := began
		v := NewVerifier(testSecret(t), here, func() time.Time { return now })
		got := send(t, "POST", testTarget, false, began.Add(ahead))
		if _, err := v.Verify(got.req); err != nil {
			t.Fatal(err)
		}
		for ; now.Before(began.Add(3 * contract.ClockSkew)); now = now.Add(7 * time.Second) {
			_, err := v.Verify(got.req)
			if !errors.Is(err, ErrReplayed) && !errors.Is(err, ErrClockSkew) {
				t.Fatalf("signed %v ahead, %v later: error %v", ahead, now.Sub(began), err)
			}
		}
	}
}

func TestNoncesOfRefusedRequestsAreNotStored(t *testing.T) {
	v := newTestVerifier(t)
	old := send(t, "GET", testTarget, false, began.Add(-time.Hour))
	forged := send(t, "GET", testTarget, false, began)
	forged.req.Method = "POST"
	for range 3 {
		if _, err := v.Verify(old.req); !errors.Is(err, ErrClockSkew) {
			t.Fatal(err)
		}
		if _, err := v.Verify(forged.req); !errors.Is(err, ErrUnauthorized) {
			t.Fatal(err)
		}
	}
	if len(v.window.seen) != 0 {
		t.Errorf("%d nonces remembered", len(v.window.seen))
	}
}

func TestTheWindowIsBoundedAndRemovesByAgeOnly(t *testing.T) {
	w := newWindow()
	for i := range maxNonces {
		must(t, w.admit(strconv.Itoa(i), began, began))
	}
	if err := w.admit("one more", began, began); !errors.Is(err, ErrTooManyNonces) || !errors.Is(err, ErrReplayed) {
		t.Fatalf("error %v", err)
	}
	if err := w.admit("0", began, began); !errors.Is(err, ErrReplayed) || errors.Is(err, ErrTooManyNonces) {
		t.Fatalf("the flood pushed a nonce out: %v", err)
	}
	later := began.Add(2*contract.ClockSkew + time.Second)
	must(t, w.admit("later", later, later))
	if len(w.seen) != 1 {
		t.Errorf("%d nonces left", len(w.seen))
	}
}
