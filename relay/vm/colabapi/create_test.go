package colabapi_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabapi/colabapitest"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func TestEachRefusalOfACreationHasItsError(t *testing.T) {
	for name, test := range map[string]struct {
		code        int
		reason      string
		accelerator string
		class       error
	}{
		"none free":             {9, "", "T4", vm.ErrNoneFree},
		"no CPU is no stockout": {9, "", "", nil},
		"too many":              {9, "TOO_MANY_ACTIVE_RUNTIMES", "T4", vm.ErrTooMany},
		"usage":                 {9, "QUOTA_EXCEEDED_USAGE_TIME", "T4", vm.ErrQuota},
		"blocked":               {9, "DENYLISTED", "T4", vm.ErrDenied},
		"exists":                {6, "", "", vm.ErrExists},
		"argument":              {3, "", "T4", vm.ErrNotEligible},
		"internal":              {13, "", "T4", nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := colabapitest.Start(t)
			g.RefuseWith(test.code, test.reason)
			_, err := g.Backend(t).Create(within.Context(t), vm.NewID(), vm.Spec{Accelerator: test.accelerator})
			known := []error{vm.ErrNoneFree, vm.ErrNotEligible, vm.ErrQuota, vm.ErrDenied, vm.ErrTooMany, vm.ErrExists, vm.ErrGone}
			is := func(class error) bool { return errors.Is(err, class) }
			if err == nil || test.class != nil && !is(test.class) || test.class == nil && slices.ContainsFunc(known, is) {
				t.Errorf("got %v", err)
			}
			if len(g.Running()) != 0 {
				t.Errorf("runs: %q", g.Running())
			}
		})
	}
}

func TestWhatIsAskedForIsWhatGoogleLists(t *testing.T) {
	g := colabapitest.Start(t)
	b := g.Backend(t)
	for _, test := range []struct {
		spec vm.Spec
		want vm.Spec
		err  error
	}{
		{vm.Spec{}, vm.Spec{}, nil},
		{vm.Spec{Accelerator: "L4"}, vm.Spec{Accelerator: "L4", HighRAM: true}, nil}, // its only shape
		{vm.Spec{Accelerator: "T4", HighRAM: true}, vm.Spec{}, vm.ErrNotEligible},
		{vm.Spec{Accelerator: "A100"}, vm.Spec{}, vm.ErrNotEligible},
	} {
		before := g.Requests("POST /v1beta/runtimes")
		got, err := b.Create(within.Context(t), vm.NewID(), test.spec)
		if !errors.Is(err, test.err) || got.Spec != test.want {
			t.Errorf("%v: %+v, %v", test.spec, got, err)
		}
		if test.err != nil && g.Requests("POST /v1beta/runtimes") != before {
			t.Errorf("%v was asked for", test.spec)
		}
	}
}

func TestACreationWhoseAnswerIsLostStartsOneVM(t *testing.T) {
	t.Parallel()
	g := colabapitest.Start(t)
	b := g.Backend(t)
	var lost atomic.Int32
	g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || r.URL.Path != "/v1beta/runtimes" || lost.Add(1) > 2 {
			return false
		}
		g.Serve(discardWriter{}, r) // it has its effect
		panic(http.ErrAbortHandler)
	})
	id := vm.NewID()
	m, err := b.Create(within.Context(t), id, vm.Spec{})
	if err != nil || m.ID != id || !slices.Equal(g.Running(), []string{id}) {
		t.Errorf("%+v, %v; runs: %q", m, err, g.Running())
	}
	if n := g.Requests("POST /v1beta/runtimes"); n != 3 {
		t.Errorf("asked %d times", n)
	}
}

// discardWriter is an answer that nobody gets.
type discardWriter struct{}

func (discardWriter) Header() http.Header         { return http.Header{} }
func (discardWriter) Write(b []byte) (int, error) { return len(b), nil }
func (discardWriter) WriteHeader(int)             {}

func TestASlowCreationIsWaitedFor(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	g := colabapitest.Start(t)
	g.WaitsForCreation = 2
	if m, err := g.Backend(t).Create(within.Context(t), vm.NewID(), vm.Spec{}); err != nil || !m.Ready {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestOperationsWithHostileNamesAreNotFollowed(t *testing.T) {
	for _, name := range []string{"", "operations/../v1beta/runtimes/x", "operations/a?b", "//evil.example/x"} {
		g := colabapitest.Start(t)
		b := g.Backend(t)
		g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost && r.URL.Path == "/v1beta/runtimes" {
				_ = json.NewEncoder(w).Encode(map[string]string{"name": name})
				return true
			}
			return false
		})
		if _, err := b.Create(within.Context(t), vm.NewID(), vm.Spec{}); err == nil || g.Requests("GET /v1/") != 0 {
			t.Errorf("%q: %v", name, err)
		}
	}
}
