package kernelstate

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"colabrelay/relay/client"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
)

// recorder passes requests on and records the code of each submit.
type recorder struct {
	http.RoundTripper
	mu    sync.Mutex
	codes []string
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodPost && request.URL.Path == contract.PathExecutions && request.GetBody != nil {
		if body, err := request.GetBody(); err == nil {
			defer body.Close() // or the call would wait for it
			r.record(body, request.Header.Get("Content-Encoding"))
		}
	}
	return r.RoundTripper.RoundTrip(request)
}

func (r *recorder) record(body io.Reader, encoding string) {
	if encoding == "gzip" {
		if zipped, err := gzip.NewReader(body); err == nil {
			body = zipped
		}
	}
	var s contract.Submit
	if json.NewDecoder(body).Decode(&s) == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.codes = append(r.codes, s.Code)
	}
}

// take returns the recorded code of this package's operations and forgets it.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ours []string
	for _, code := range r.codes {
		if strings.HasPrefix(code, "# colab-relay: ") {
			ours = append(ours, code)
		}
	}
	r.codes = nil
	return ours
}

func TestOperationsSendThePackageOnlyWhereItIsMissing(t *testing.T) {
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		t.Parallel()
		v, dir := newVM(t, s), t.TempDir()
		r := &recorder{RoundTripper: http.DefaultTransport.(*http.Transport).Clone()}
		t.Cleanup(r.RoundTripper.(*http.Transport).CloseIdleConnections)
		key, err := auth.NewSecret(secret)
		must(t, err)
		v.client, err = client.New(client.Config{BaseURL: v.exec.Ready.LocalURL, Secret: key, Transport: r})
		must(t, err)
		t.Cleanup(v.client.Close)

		const purge = "import sys\nfor _name in list(sys.modules):\n    if _name.startswith('colab_relay_'): del sys.modules[_name]"
		for round, with := range []int{0, 0, 1} {
			if round == 2 {
				v.run(purge)
			}
			v.run("import numpy as np\nx = [np.arange(9), lambda: 7]")
			v.save(dir, "n")
			v.run("del x")
			v.restore(dir, "n")
			if got := v.run("print(x[0].sum(), x[1]())"); got != "36 7\n" {
				t.Errorf("round %d: x is %s", round, got)
			}
			sent := 0
			for _, code := range r.take() {
				if strings.Contains(code, `"package_loader.py":`) {
					sent++
				} else if len(code) > 3<<10+200 { // the arguments are a path and a digest
					t.Errorf("round %d: an operation has %d bytes", round, len(code))
				}
			}
			if sent != with {
				t.Errorf("round %d: %d operations with the package, want %d", round, sent, with)
			}
		}
	})
}
