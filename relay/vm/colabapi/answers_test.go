package colabapi

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"colabrelay/relay/vm"
	"colabrelay/shared/bounded"
)

// pages answers each request with the next text, and then with the last one again.
type pages struct {
	texts []string
	asked int
}

func (p *pages) RoundTrip(r *http.Request) (*http.Response, error) {
	text := p.texts[min(p.asked, len(p.texts)-1)]
	p.asked++
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

// backendOf returns a backend that is logged in, and whose API answers with these pages.
func backendOf(p *pages) *Backend {
	b := New(Config{Transport: p})
	b.access.value, b.access.until = access{token: "t"}, time.Now().Add(time.Hour)
	return b
}

// wantPlain checks an error that people and models see.
func wantPlain(t *testing.T, err error) {
	t.Helper()
	if err != nil && (len(err.Error()) > 2000 || strings.ContainsFunc(err.Error(), unicode.IsControl)) {
		t.Errorf("the error is %q", err.Error())
	}
}

// FuzzLists reads any pages, one a line, as the API's lists of VMs and of the kinds that the
// account may start, and as one VM. Lists are bounded, and a VM is reached only at Google's.
func FuzzLists(f *testing.F) {
	const connection = `,"connectionInfo":{"url":"https://8080-abc.prod.colab.dev","token":"t.k","expireTime":"2026-11-22T00:00:00Z"}}`
	f.Add(`{"runtimes":[{"name":"runtimes/a","runtimeSpec":{"accelerator":"T4"}` + connection + `],"nextPageToken":"n"}` + "\n" + `{}`)
	f.Add(`{"runtimes":null,"nextPageToken":"again"}`)
	f.Add(`{"runtimeSpecs":[{"key":{"accelerator":"T4\u001b","shape":"SHAPE_HIGHMEM"},"eligible":true},{"key":{"accelerator":"NONE"},"eligible":true}]}`)
	f.Add(`{"name":"runtimes/a","runtimeSpec":{}` + connection)
	f.Add(`{"name":"runtimes/a","connectionInfo":{"url":"https://a.example/8080-abc.prod.colab.dev","token":"t\r\nX: y"}}`)
	f.Add("null\n[]\n{")
	f.Fuzz(func(t *testing.T, text string) {
		list := &pages{texts: strings.Split(text, "\n")}
		machines, err := backendOf(list).List(t.Context())
		wantPlain(t, err)
		if len(machines) > vm.MaxMachines || list.asked > maxPages || err != nil && machines != nil {
			t.Errorf("%d VMs of %d pages, %v", len(machines), list.asked, err)
		}
		specs, err := backendOf(&pages{texts: list.texts}).Specs(t.Context())
		wantPlain(t, err)
		if len(specs) > 2*vm.MaxMachines {
			t.Errorf("there are %d kinds", len(specs))
		}
		for i, s := range specs {
			if strings.Trim(s.Accelerator, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") != "" || len(s.Accelerator) > 20 || slices.Contains(specs[:i], s) {
				t.Errorf("there is the kind %+v", s)
			}
		}
		at, _, err := backendOf(&pages{texts: list.texts}).askAddress(t.Context(), "a")
		wantPlain(t, err)
		if err != nil {
			return
		}
		port, err := url.Parse("https://8000" + at.host)
		if err != nil || port.Port() != "" || !strings.HasSuffix(port.Host, "colab.dev") && !strings.HasSuffix(port.Host, ".googleusercontent.com") || port.User != nil || !isToken(at.token) {
			t.Errorf("the token %q is sent to %v, %v", at.token, port, err)
		}
	})
}

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
		if e.raised != nil && (utf8.RuneCountInString(e.raised.Name) > maxErrorText || utf8.RuneCountInString(e.raised.Value) > maxErrorText) {
			t.Error("the exception is too long")
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
	for text, host := range map[string]string{
		"https://8080-abc-1.us-central1.prod.colab.dev":  "-abc-1.us-central1.prod.colab.dev",
		"https://8080-abc.us-central1.prod.colab.dev/":   "-abc.us-central1.prod.colab.dev",
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
		if at, err := proxyAddress(text); at.host != host || (err == nil) != (host != "") {
			t.Errorf("%q: %v, %v", text, at, err)
		}
	}
}
