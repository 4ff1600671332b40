package tunnel

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestEveryExplanationIsOneLineThatNamesItsCode(t *testing.T) {
	for code := range explanations {
		_, refused := judge(errors.New("some words\r\n\r\n" + code + "\r\n"))
		if refused == nil || refused.Code != code {
			t.Fatalf("%s is judged %v", code, refused)
		}
		if text := refused.Error(); strings.ContainsAny(text, "\r\n") || !strings.HasSuffix(text, "("+code+")") || len(text) > 250 {
			t.Errorf("it says %q", text)
		}
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		text string
		want verdict
	}{
		{"connection reset by peer", unsettled},
		{"ERR_NGROK_105", final},
		{"ERR_NGROK_108", busy},
		{"ERR_NGROK_112", final},
		{"ERR_NGROK_334", busy},
		{"ERR_NGROK_313", final},
		{"ERR_NGROK_4018", final},
		{"ERR_NGROK_8000", busy},
		{"ERR_NGROK_", unsettled},
	} {
		if got, _ := judge(errors.New(c.text)); got != c.want {
			t.Errorf("%q is judged %d, want %d", c.text, got, c.want)
		}
	}
}

func TestPatienceIsCountedFromTheFirstRefusalSinceTheTunnelWasUp(t *testing.T) {
	now := time.Now()
	p := newPatience(3 * time.Minute)
	p.now = func() time.Time { return now }
	online := errors.New("ERR_NGROK_334")
	step := func(d time.Duration, want bool) {
		t.Helper()
		now = now.Add(d)
		if got := p.judge(online) != nil; got != want {
			t.Fatalf("given up: %t, want %t", got, want)
		}
	}
	step(0, false)
	step(2*time.Minute, false)
	if p.judge(errors.New("no route to host")) != nil {
		t.Fatal("a network fault ended it")
	}
	p.restored()
	step(2*time.Minute, false)
	step(2*time.Minute, false)
	step(time.Minute, true)
}
