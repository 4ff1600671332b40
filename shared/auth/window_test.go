package auth

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

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
	if v.window.count != 0 {
		t.Errorf("%d nonces remembered", v.window.count)
	}
}

func TestTheWindowIsBoundedAndRemovesByAgeOnly(t *testing.T) {
	w := newWindow()
	for i := range maxNonces {
		if err := w.admit(strconv.Itoa(i), began, began); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.admit("one more", began, began); !errors.Is(err, ErrTooManyNonces) || !errors.Is(err, ErrReplayed) {
		t.Fatalf("error %v", err)
	}
	if err := w.admit("0", began, began); !errors.Is(err, ErrReplayed) || errors.Is(err, ErrTooManyNonces) {
		t.Fatalf("the flood pushed a nonce out: %v", err)
	}
	later := began.Add(2*contract.ClockSkew + time.Second)
	if err := w.admit("later", later, later); err != nil {
		t.Fatal(err)
	}
	if w.count != 1 || len(w.generations) != 1 {
		t.Errorf("%d nonces in %d generations left", w.count, len(w.generations))
	}
}
