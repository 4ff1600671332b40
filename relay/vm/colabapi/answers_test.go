package colabapi

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"colabrelay/relay/vm"
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
		port, err := at.ofPort(8000)
		if err == nil && (port.Scheme != "https" || port.Port() != "" || !strings.HasSuffix(port.Host, "colab.dev") && !strings.HasSuffix(port.Host, ".googleusercontent.com") || port.User != nil) || !isToken(at.token) {
			t.Errorf("the token %q is sent to %v, %v", at.token, port, err)
		}
	})
}
