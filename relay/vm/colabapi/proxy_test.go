package colabapi_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"colabrelay/relay/client"
	"colabrelay/relay/vm"
	"colabrelay/shared/within"
)

// onVM starts a program that answers HTTP on the VM, and returns how it is reached.
func onVM(t *testing.T, b vm.Proxied, id string, h http.HandlerFunc) (base string, rt http.RoundTripper) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	u, _ := url.Parse(s.URL)
	port, _ := strconv.Atoi(u.Port())
	base, rt, err := b.Proxy(within.Context(t), id, port)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(base, "https://"+u.Port()+"-"+id+".prod.colab.dev") {
		t.Errorf("base URL %q", base)
	}
	return base, rt
}

func get(t *testing.T, rt http.RoundTripper, target string) (*http.Response, string, error) {
	req, err := http.NewRequestWithContext(within.Context(t), http.MethodPost, target, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
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
