package colabapi_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"colabrelay/relay/vm/colabapi"
	"colabrelay/relay/vm/colabapi/colabapitest"
	"colabrelay/shared/within"
)

// stranger sends a request to the listener of a login and returns the status.
func stranger(t *testing.T, method, target, host string) int {
	t.Helper()
	req, err := http.NewRequest(method, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Errorf("%s %s: %v", method, target, err)
		return 0
	}
	defer res.Body.Close()
	if text, _ := io.ReadAll(res.Body); strings.Contains(string(text), "state=") {
		t.Errorf("the answer to %s tells the state", target)
	}
	return res.StatusCode
}

// attack calls do with the redirect address and the state of a login that waits, then lets
// the person answer, and returns the result of the login.
func attack(t *testing.T, do func(g *colabapitest.Google, redirect, state string)) error {
	t.Helper()
	g := colabapitest.Start(t)
	return colabapi.Login(within.Context(t), colabapi.LoginRequest{Dir: t.TempDir(), ClientFile: g.ClientFile(t), Transport: g, Open: func(ctx context.Context, page string) error {
		u, err := url.Parse(page)
		if err != nil {
			return err
		}
		do(g, u.Query().Get("redirect_uri"), u.Query().Get("state"))
		return g.Approve(ctx, page)
	}})
}

func TestStrangersOnThisComputerChangeNothing(t *testing.T) {
	err := attack(t, func(_ *colabapitest.Google, redirect, state string) {
		for _, test := range []struct {
			method, path, host string
			want               int
		}{
			{"GET", "", "", 400},
			{"GET", "?code=x&state=wrong", "", 400},
			{"GET", "?code=x&state=" + state + "&state=" + state, "", 400},
			{"GET", "?code=x&code=y&state=" + state, "", 400},
			{"GET", "?error=access_denied&state=wrong", "", 400},
			{"POST", "?code=x&state=" + state, "", 405},
			{"GET", "favicon.ico?code=x&state=" + state, "", 404},
			{"GET", "?code=x&state=" + state, "evil.example", 404},
		} {
			if got := stranger(t, test.method, redirect+test.path, test.host); got != test.want {
				t.Errorf("%s %.80s, host %q: HTTP %d, want %d", test.method, test.path, test.host, got, test.want)
			}
		}
	})
	if err != nil {
		t.Errorf("the person's own answer did not arrive: %v", err)
	}
}

// A page that knows the state, which is in the browser's history, comes too late.
func TestOnlyTheFirstAnswerCounts(t *testing.T) {
	g := colabapitest.Start(t)
	answered := make(chan int, 1)
	err := colabapi.Login(within.Context(t), colabapi.LoginRequest{Dir: t.TempDir(), ClientFile: g.ClientFile(t), Transport: g, Open: func(ctx context.Context, page string) error {
		if err := g.Approve(ctx, page); err != nil {
			return err
		}
		u, _ := url.Parse(page)
		answered <- stranger(t, "GET", u.Query().Get("redirect_uri")+"?code=x&state="+u.Query().Get("state"), "")
		return nil
	}})
	if got := <-answered; err != nil || got != http.StatusGone {
		t.Errorf("the second answer: HTTP %d; login: %v", got, err)
	}
}
