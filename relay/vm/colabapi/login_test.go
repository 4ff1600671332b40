package colabapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"colabrelay/relay/client"
	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabapi"
	"colabrelay/relay/vm/colabapi/colabapitest"
	"colabrelay/shared/within"
)

const loginFile = "google-login.json"

func TestALoginIsKeptInAFileOfThisUserOnly(t *testing.T) {
	g := colabapitest.Start(t)
	dir := t.TempDir()
	// A login file that others could read is closed before it gets the new token.
	must(t, os.WriteFile(filepath.Join(dir, loginFile), []byte("{}"), 0o644))
	var shown string
	err := colabapi.Login(within.Context(t), colabapi.LoginRequest{Dir: dir, ClientFile: g.ClientFile(t), Transport: g, Open: g.Approve, Show: func(url string) { shown = url }})
	if err != nil {
		t.Fatalf("login: %v", err)
	}
	info, err := os.Stat(filepath.Join(dir, loginFile))
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for _, secret := range g.Secrets() {
		if strings.Contains(shown, secret) {
			t.Error("the address that people see contains a secret")
		}
	}
	b := colabapi.New(colabapi.Config{Dir: dir, Transport: g})
	defer b.Close()
	if specs, err := b.Specs(within.Context(t)); err != nil || len(specs) != 6 {
		t.Errorf("%v, %v", specs, err)
	}
}

func TestALoginThatThePersonDeclines(t *testing.T) {
	g := colabapitest.Start(t)
	r := colabapi.LoginRequest{Dir: t.TempDir(), ClientFile: g.ClientFile(t), Transport: g, Open: g.Decline}
	err := colabapi.Login(within.Context(t), r)
	if err == nil || !strings.Contains(err.Error(), "declined") || strings.ContainsRune(err.Error(), '\x1b') {
		t.Errorf("got %q", err)
	}
	if _, err := os.Stat(filepath.Join(r.Dir, loginFile)); err == nil {
		t.Error("a login was saved")
	}
	for _, secret := range g.Secrets() {
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("the error contains a secret: %v", err)
		}
	}
}

func TestApplicationDefaultCredentials(t *testing.T) {
	for kind, want := range map[string]string{
		"authorized_user": "",
		"service_account": "belong to a person",
	} {
		t.Run(kind, func(t *testing.T) {
			g, dir := colabapitest.Start(t), t.TempDir()
			path := g.DefaultsFile(t, kind)
			getenv := func(name string) string { return map[string]string{"GOOGLE_APPLICATION_CREDENTIALS": path}[name] }
			err := colabapi.Login(within.Context(t), colabapi.LoginRequest{Dir: dir, Getenv: getenv, Transport: g})
			if want != "" {
				if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, vm.ErrNotLoggedIn) {
					t.Errorf("got %v", err)
				}
				return
			}
			must(t, err)
			text, _ := os.ReadFile(filepath.Join(dir, loginFile))
			for _, secret := range g.Secrets() {
				if strings.Contains(string(text), secret) {
					t.Error("the login file repeats a secret of the credentials")
				}
			}
			b := colabapi.New(colabapi.Config{Dir: dir, Transport: g})
			defer b.Close()
			if _, err := b.List(within.Context(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// stranger sends a request to the listener of a login and returns the status.
func stranger(t *testing.T, method, target, host string) int {
	t.Helper()
	req, err := http.NewRequest(method, target, nil)
	must(t, err)
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
			{"GET", "?error=access_denied&state=wrong", "", 400},
			{"POST", "?code=x&state=" + state, "", 404},
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

// onVM starts a program that answers HTTP on the VM, and returns how it is reached.
func onVM(t *testing.T, b vm.Proxied, id string, h http.HandlerFunc) (base string, rt http.RoundTripper) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	u, _ := url.Parse(s.URL)
	port, _ := strconv.Atoi(u.Port())
	base, err := b.Proxy(within.Context(t), id, port)
	must(t, err)
	if !strings.HasPrefix(base, "https://"+u.Port()+"-"+id+".prod.colab.dev") {
		t.Errorf("base URL %q", base)
	}
	return base, b.Transport(id)
}

func get(t *testing.T, rt http.RoundTripper, target string) (*http.Response, string, error) {
	req, err := http.NewRequestWithContext(within.Context(t), http.MethodPost, target, strings.NewReader("body"))
	must(t, err)
	res, err := rt.RoundTrip(req)
	if req.Header.Get("X-Colab-Runtime-Proxy-Token") != "" {
		t.Error("the caller's request was changed")
	}
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res, string(text), err
}

func TestAPortOfTheVMIsReached(t *testing.T) {
	_, b, id := started(t)
	base, rt := onVM(t, b, id, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		for name := range r.Header {
			if strings.HasPrefix(name, "X-Colab-") {
				t.Errorf("the VM gets %s", name)
			}
		}
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.URL, text, r.Header.Get("Signature"))
	})
	if res, text, err := get(t, rt, base+"/v1/x?y=z"); err != nil || res.StatusCode != 200 || text != "POST /v1/x?y=z body " {
		t.Errorf("%q, %v", text, err)
	}
}

// A refusal by the proxy says nothing about the VM. Only the API does.
func TestOnlyTheAPISaysThatAVMIsGone(t *testing.T) {
	g, b, id := started(t)
	base, rt := onVM(t, b, id, func(http.ResponseWriter, *http.Request) {})
	g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/v1") {
			http.Error(w, "<html>", http.StatusNotFound)
			return true
		}
		return false
	})
	for range 10 {
		_, _, err := get(t, rt, base)
		route, ok := errors.AsType[*client.RouteError](err)
		if !ok || errors.Is(err, vm.ErrGone) || route.Hint == "" {
			t.Fatalf("got %v", err)
		}
	}
	if n := g.Requests("GET /v1beta/runtimes/"); n > 4 {
		t.Errorf("10 refusals caused %d calls of the API", n)
	}
	if err := b.Touch(within.Context(t), id); err == nil || errors.Is(err, vm.ErrGone) {
		t.Errorf("touch: %v", err)
	}
}

func TestAnExecutorsOwnRefusalsPass(t *testing.T) {
	_, b, id := started(t)
	var calls atomic.Int32
	base, rt := onVM(t, b, id, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if r.URL.Path == "/signed" {
			w.Header().Set("Signature", "x")
			w.WriteHeader(404)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(401)
		fmt.Fprint(w, `{"error":{"code":"unauthorized"}}`)
	})
	if res, _, err := get(t, rt, base+"/signed"); err != nil || res.StatusCode != 404 || calls.Load() != 1 {
		t.Errorf("signed: %v after %d calls", err, calls.Load())
	}
	if res, text, err := get(t, rt, base+"/unsigned"); err != nil || res.StatusCode != 401 || !strings.Contains(text, "unauthorized") {
		t.Errorf("unsigned: %q, %v", text, err)
	}
}
