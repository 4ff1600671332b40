package colabapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
		"none free":               {9, "", "T4", vm.ErrNoneFree},
		"none free, other word":   {9, "STOCKOUT", "T4", vm.ErrNoneFree},
		"no CPU is no stockout":   {9, "", "", nil},
		"too many":                {9, "TOO_MANY_ACTIVE_RUNTIMES", "T4", vm.ErrTooMany},
		"too many, as others saw": {8, "TOO_MANY_ACTIVE_RUNTIMES", "", vm.ErrTooMany},
		"usage":                   {9, "QUOTA_EXCEEDED_USAGE_TIME", "T4", vm.ErrQuota},
		"exhausted":               {8, "", "T4", vm.ErrQuota},
		"blocked":                 {9, "DENYLISTED", "T4", vm.ErrDenied},
		"forbidden":               {7, "", "T4", vm.ErrDenied},
		"exists":                  {6, "", "", vm.ErrExists},
		"argument":                {3, "", "T4", vm.ErrNotEligible},
		"internal":                {13, "", "T4", nil},
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

// The API may refuse a creation at once, without an Operation.
func TestEachRefusalAtOnceHasItsError(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		rpc    string
		reason string
		class  error
	}{
		"argument":     {400, "INVALID_ARGUMENT", "", vm.ErrNotEligible},
		"none free":    {400, "FAILED_PRECONDITION", "", vm.ErrNoneFree},
		"too many":     {400, "FAILED_PRECONDITION", "TOO_MANY_ACTIVE_RUNTIMES", vm.ErrTooMany},
		"too many 429": {429, "RESOURCE_EXHAUSTED", "TOO_MANY_ACTIVE_RUNTIMES", vm.ErrTooMany},
		"usage":        {429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED_USAGE_TIME", vm.ErrQuota},
		"blocked":      {403, "PERMISSION_DENIED", "DENYLISTED", vm.ErrDenied},
		"exists":       {409, "ALREADY_EXISTS", "", vm.ErrExists},
	} {
		t.Run(name, func(t *testing.T) {
			g := colabapitest.Start(t)
			b := g.Backend(t)
			g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPost || r.URL.Path != "/v1beta/runtimes" {
					return false
				}
				w.WriteHeader(test.status)
				fmt.Fprintf(w, `{"error":{"code":%d,"status":%q,"message":"no","details":[{"reason":%q}]}}`, test.status, test.rpc, test.reason)
				return true
			})
			_, err := b.Create(within.Context(t), vm.NewID(), vm.Spec{Accelerator: "T4"})
			if !errors.Is(err, test.class) || g.Requests("POST /v1beta/runtimes") != 1 {
				t.Errorf("asked %d times: %v", g.Requests("POST /v1beta/runtimes"), err)
			}
		})
	}
}

// The manager asks only for what Specs contains.
func TestTheOnlyShapeOfAnAcceleratorIsOfferedWithoutHighRAM(t *testing.T) {
	specs, err := colabapitest.Start(t).Backend(t).Specs(within.Context(t))
	for _, s := range []vm.Spec{{}, {HighRAM: true}, {Accelerator: "L4"}, {Accelerator: "L4", HighRAM: true}} {
		if err != nil || !slices.Contains(specs, s) {
			t.Errorf("%v is missing: %v, %v", s, specs, err)
		}
	}
	if slices.Contains(specs, vm.Spec{Accelerator: "A100"}) || slices.Contains(specs, vm.Spec{Accelerator: "T4", HighRAM: true}) {
		t.Errorf("not eligible: %v", specs)
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
		{vm.Spec{HighRAM: true}, vm.Spec{HighRAM: true}, nil},
		{vm.Spec{Accelerator: "V5E1"}, vm.Spec{Accelerator: "V5E1"}, nil},
		{vm.Spec{Accelerator: "L4"}, vm.Spec{Accelerator: "L4", HighRAM: true}, nil}, // its only shape
		{vm.Spec{Accelerator: "T4", HighRAM: true}, vm.Spec{}, vm.ErrNotEligible},
		{vm.Spec{Accelerator: "A100"}, vm.Spec{}, vm.ErrNotEligible},
		{vm.Spec{Accelerator: "H100"}, vm.Spec{}, vm.ErrNotEligible},
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
	tier.Long(t)
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
	for name, noWait := range map[string]bool{"with wait": false, "without wait": true} {
		t.Run(name, func(t *testing.T) {
			g := colabapitest.Start(t)
			g.WaitsForCreation, g.NoWait = 2, noWait
			if m, err := g.Backend(t).Create(within.Context(t), vm.NewID(), vm.Spec{}); err != nil || !m.Ready {
				t.Errorf("%+v, %v", m, err)
			}
		})
	}
}

func TestACreationEndsWithItsContext(t *testing.T) {
	g := colabapitest.Start(t)
	g.WaitsForCreation = 1000
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := g.Backend(t).Create(ctx, vm.NewID(), vm.Spec{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestOperationsWithHostileNamesAreNotFollowed(t *testing.T) {
	for _, name := range []string{"", "operations/", "operations/../v1beta/runtimes/x", "runtimes/x", "operations/a?b", "operations/a b", "operations/" + strings.Repeat("a", 300), "//evil.example/x"} {
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
