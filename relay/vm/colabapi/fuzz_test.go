package colabapi

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"

	"colabrelay/relay/vm"
	"colabrelay/shared/bounded"
)

// A kernel on the VM is not trusted.
func FuzzReceive(f *testing.F) {
	f.Add([]byte(`{"header":{"msg_type":"stream"},"parent_header":{"msg_id":"r"},"content":{"text":"a\u001b"}}`))
	f.Add([]byte(`{"header":{"msg_type":"error"},"parent_header":{"msg_id":"r"},"content":{"ename":"E","evalue":"v"}}`))
	f.Add([]byte(`{"header":{"msg_type":"status"},"content":{"execution_state":"dead"}}`))
	f.Fuzz(func(t *testing.T, frame []byte) {
		e := execution{id: "r", output: bounded.Tail{Max: vm.MaxOutput}}
		for range 3 {
			if err := e.receive(frame); err != nil && !errors.Is(err, errKernelDied) {
				t.Errorf("got %v", err)
			}
		}
		if out := e.output.String(); len(out) > vm.MaxOutput {
			t.Errorf("%d bytes of output", len(out))
		}
		if e.raised != nil && (len(e.raised.Name) > maxErrorText || len(e.raised.Value) > maxErrorText) {
			t.Error("the exception is too long")
		}
	})
}

// Everybody on this computer can send to the listener of a login.
func FuzzReadRedirect(f *testing.F) {
	for _, query := range []string{"", "state=s&code=c", "state=s&error=access_denied", "state=s&code=c&code=d", "code=c", "state=s&error=%1b[31m", "%zz"} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		got, err := readRedirect(query, "s")
		values, unreadable := url.ParseQuery(query)
		if err == nil && (unreadable != nil || values.Get("state") != "s" || (got.code == "") == (got.err == nil)) {
			t.Errorf("%q was accepted: %+v", query, got)
		}
		if got.err != nil && strings.ContainsRune(got.err.Error(), '\x1b') {
			t.Errorf("the error is not plain: %q", got.err)
		}
	})
}

// An answer of the API decides which error people see, and whether a VM counts as gone.
func FuzzRefusal(f *testing.F) {
	f.Add(404, []byte(`{"error":{"code":404,"message":"m","details":[{"reason":"R"}]}}`))
	f.Add(404, []byte(`{"error":{"code":403}}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		err, _ := refusal(status, body, "p")
		var page struct{ Error struct{ Code int } }
		if errors.Is(err, vm.ErrGone) || errors.Is(err, errNotFound) && (json.Unmarshal(body, &page) != nil || page.Error.Code != status) || len(err.Error()) > 2000 || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("HTTP %d, %q: %v", status, body, err)
		}
	})
}

func TestAddressesOfProxies(t *testing.T) {
	for text, port := range map[string]string{
		"https://8080-abc-1.us-central1.prod.colab.dev":  "https://8000-abc-1.us-central1.prod.colab.dev",
		"https://8080-abc.us-central1.prod.colab.dev/":   "https://8000-abc.us-central1.prod.colab.dev",
		"https://8080-abc.prod.colab.dev:443":            "",
		"http://8080-abc.prod.colab.dev":                 "",
		"https://colab.dev":                              "",
		"https://8080-abc.colab.dev.evil.example":        "",
		"https://8080-abc.evilcolab.dev":                 "",
		"https://8080-abc.prod.colab.dev@evil.example":   "",
		"https://evil.example#8080-abc.prod.colab.dev":   "",
		"https://evil.example?x=8080-abc.prod.colab.dev": "",
		"https://evil.example/8080-abc.prod.colab.dev":   "",
		"": "",
	} {
		at, err := proxyAddress(text)
		var base *url.URL
		if err == nil {
			base, err = at.ofPort(8000)
		}
		if (err == nil) != (port != "") || err == nil && base.String() != port {
			t.Errorf("%q: %v, %v", text, base, err)
		}
	}
}
