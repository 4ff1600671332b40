package kernelstate

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/line/linetest"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// recorder passes requests on and records the code of each submit.
type recorder struct {
	http.RoundTripper
	secret auth.Secret
	mu     sync.Mutex
	codes  []string
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodPost && request.URL.Path == contract.PathExecutions {
		if err := r.record(request.Clone(request.Context())); err != nil {
			return nil, err
		}
	}
	return r.RoundTripper.RoundTrip(request)
}

// record opens request as the executor that it is for.
func (r *recorder) record(request *http.Request) (err error) {
	if request.Body, err = request.GetBody(); err != nil {
		return err
	}
	defer request.Body.Close() // or the call would wait for it
	instance, err := contract.ParseInstance(request.Header.Get(contract.HeaderInstance))
	if err != nil {
		return err
	}
	_, body, err := linetest.NewExecutor(r.secret, instance, time.Now).Open(request)
	if err != nil {
		return err
	}
	var s contract.Submit
	if err = json.Unmarshal(body, &s); err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.codes = append(r.codes, s.Code)
	}
	return err
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
	tier.Long(t)
	t.Parallel()
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		t.Parallel()
		v, dir := newVM(t, s), t.TempDir()
		key, err := auth.NewSecret(secret)
		must(t, err)
		r := &recorder{RoundTripper: http.DefaultTransport.(*http.Transport).Clone(), secret: key}
		t.Cleanup(r.RoundTripper.(*http.Transport).CloseIdleConnections)
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
