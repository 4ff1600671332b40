package colabapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabapi"
	"colabrelay/relay/vm/colabapi/colabapitest"
)

// mustSendProject checks the project whose quota calls name; empty for none.
func mustSendProject(t *testing.T, g *colabapitest.Google, dir, want string) {
	t.Helper()
	var got atomic.Value
	g.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/v1") {
			got.Store(r.Header.Get("X-Goog-User-Project"))
		}
		return false
	})
	b, err := colabapi.New(colabapi.Config{Dir: dir, Getenv: g.Getenv})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.List(within(t)); err != nil || got.Load() != want {
		t.Errorf("sent project %q, %v", got.Load(), err)
	}
}

func TestALoginOfOnesOwnClientNamesNoProject(t *testing.T) {
	g := colabapitest.Start(t)
	mustSendProject(t, g, g.Login(t), "")
}

func TestEachRefusalOfACallHasItsError(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		reason string
		class  error // nil for none of relay/vm's
		want   string
	}{
		"token":       {401, "", vm.ErrNotLoggedIn, "vm login"},
		"scope":       {403, "ACCESS_TOKEN_SCOPE_INSUFFICIENT", vm.ErrNotLoggedIn, "vm login"},
		"API off":     {403, "SERVICE_DISABLED", vm.ErrDenied, "console.cloud.google.com/apis/library/colaboratory.googleapis.com"},
		"project":     {403, "USER_PROJECT_DENIED", vm.ErrDenied, "set-quota-project"},
		"allowlist":   {403, "", vm.ErrDenied, "beta"},
		"no such VM":  {404, "", vm.ErrGone, ""},
		"bad request": {400, "", nil, "HTTP 400"},
		"redirect":    {302, "", nil, "HTTP 302"},
	} {
		t.Run(name, func(t *testing.T) {
			g := colabapitest.Start(t)
			b := g.Backend(t)
			g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasPrefix(r.URL.Path, "/v1") {
					return false
				}
				w.Header().Set("Location", g.URL+"/elsewhere")
				colabapitest.WriteError(w, test.status, test.reason, "why\x1b[31m not\nhere")
				return true
			})
			_, err := b.List(within(t))
			if err == nil || test.class != nil && !errors.Is(err, test.class) || !strings.Contains(err.Error(), test.want) || strings.ContainsAny(err.Error(), "\x1b\n") {
				t.Errorf("got %q", err)
			}
			if n := g.Requests("GET /v1beta/runtimes"); n > 2 || g.Requests("GET /elsewhere") != 0 {
				t.Errorf("asked %d times, %d redirects followed", n, g.Requests("GET /elsewhere"))
			}
		})
	}
}

// A login page of a hotel's network, or a proxy's error, proves nothing about VMs.
func TestAnswersThatAreNotTheAPIs(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"404 page":       func(w http.ResponseWriter) { http.Error(w, "<html>login</html>", 404) },
		"409 page":       func(w http.ResponseWriter) { http.Error(w, "{}", 409) },
		"other code":     func(w http.ResponseWriter) { w.WriteHeader(404); fmt.Fprint(w, `{"error":{"code":403}}`) },
		"page":           func(w http.ResponseWriter) { fmt.Fprint(w, "<html>login</html>") },
		"endless":        func(w http.ResponseWriter) { flood(w) },
		"another's VM":   func(w http.ResponseWriter) { fmt.Fprint(w, `{"name":"runtimes/another"}`) },
		"deep":           func(w http.ResponseWriter) { fmt.Fprint(w, strings.Repeat("[", 1<<20)) },
		"wrong types":    func(w http.ResponseWriter) { fmt.Fprint(w, `{"runtimes":7,"name":[]}`) },
		"hostile cookie": func(w http.ResponseWriter) { w.Header().Set("Set-Cookie", "a=b"); w.WriteHeader(418) },
	} {
		t.Run(name, func(t *testing.T) {
			g, b, id := started(t)
			g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/v1beta/runtimes/") {
					answer(w)
					return true
				}
				return false
			})
			if err := b.Touch(within(t), id); err == nil || errors.Is(err, vm.ErrGone) {
				t.Errorf("touch: %v", err)
			}
			if err := b.Delete(within(t), id); err == nil || errors.Is(err, vm.ErrGone) {
				t.Errorf("delete: %v", err)
			}
			if _, err := b.Create(within(t), vm.NewID(), vm.Spec{}); err == nil || errors.Is(err, vm.ErrExists) {
				t.Errorf("create: %v", err)
			}
		})
	}
}

func flood(w http.ResponseWriter) {
	piece := []byte(strings.Repeat("x", 1<<20))
	for {
		if _, err := w.Write(piece); err != nil {
			return
		}
	}
}

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
			_, err := g.Backend(t).Create(within(t), vm.NewID(), vm.Spec{Accelerator: test.accelerator})
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
		{vm.Spec{HighRAM: true}, vm.Spec{HighRAM: true}, nil},
		{vm.Spec{Accelerator: "V5E1"}, vm.Spec{Accelerator: "V5E1"}, nil},
		{vm.Spec{Accelerator: "L4"}, vm.Spec{Accelerator: "L4", HighRAM: true}, nil}, // its only shape
		{vm.Spec{Accelerator: "T4", HighRAM: true}, vm.Spec{}, vm.ErrNotEligible},
		{vm.Spec{Accelerator: "A100"}, vm.Spec{}, vm.ErrNotEligible},
		{vm.Spec{Accelerator: "H100"}, vm.Spec{}, vm.ErrNotEligible},
	} {
		before := g.Requests("POST /v1beta/runtimes")
		got, err := b.Create(within(t), vm.NewID(), test.spec)
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
	m, err := b.Create(within(t), id, vm.Spec{})
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
	t.Parallel()
	for name, noWait := range map[string]bool{"with wait": false, "without wait": true} {
		t.Run(name, func(t *testing.T) {
			g := colabapitest.Start(t)
			g.WaitsForCreation, g.NoWait = 2, noWait
			if m, err := g.Backend(t).Create(within(t), vm.NewID(), vm.Spec{}); err != nil || !m.Ready {
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
		if _, err := b.Create(within(t), vm.NewID(), vm.Spec{}); err == nil || g.Requests("GET /v1/") != 0 {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestAllPagesOfAListAreRead(t *testing.T) {
	g := colabapitest.Start(t)
	g.PageSize = 3
	for i := range 10 {
		g.Add(fmt.Sprintf("another-%d", i))
	}
	if all, err := g.Backend(t).List(within(t)); err != nil || len(all) != 10 || all[9].ID != "another-9" {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestListsWithoutEndAreErrors(t *testing.T) {
	for name, vms := range map[string]int{"too many": vm.MaxMachines + 1, "pages": 1} {
		t.Run(name, func(t *testing.T) {
			g := colabapitest.Start(t)
			b := g.Backend(t)
			g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != "/v1beta/runtimes" {
					return false
				}
				_ = json.NewEncoder(w).Encode(map[string]any{"runtimes": slices.Repeat([]any{map[string]string{"name": "runtimes/a"}}, vms), "nextPageToken": "1"})
				return true
			})
			if all, err := b.List(within(t)); err == nil || all != nil {
				t.Errorf("%d, %v", len(all), err)
			}
			if n := g.Requests("GET /v1beta/runtimes"); n > 50 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

func TestAnOverloadedAPIIsAskedAgainWhenItSays(t *testing.T) {
	t.Parallel()
	g := colabapitest.Start(t)
	b := g.Backend(t)
	var times []time.Time
	g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v1beta/runtimes" {
			return false
		}
		if times = append(times, time.Now()); len(times) > 2 {
			return false
		}
		w.Header().Set("Retry-After", "1")
		colabapitest.WriteError(w, []int{503, 429}[len(times)-1], "", "busy")
		return true
	})
	if _, err := b.List(within(t)); err != nil || len(times) != 3 {
		t.Fatalf("%d times, %v", len(times), err)
	}
	for i := range 2 {
		if waited := times[i+1].Sub(times[i]); waited < time.Second {
			t.Errorf("asked again after %s", waited)
		}
	}
}

func TestALongPauseIsAnErrorAtOnce(t *testing.T) {
	g := colabapitest.Start(t)
	b := g.Backend(t)
	g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/v1") {
			return false
		}
		w.Header().Set("Retry-After", "3600")
		colabapitest.WriteError(w, 429, "RATE_LIMIT_EXCEEDED", "slow down")
		return true
	})
	if _, err := b.List(within(t)); err == nil || !strings.Contains(err.Error(), "wait 1h") || g.Requests("GET /v1beta/runtimes") != 1 {
		t.Errorf("got %v", err)
	}
}

func TestOneRenewalServesAllCallers(t *testing.T) {
	g := colabapitest.Start(t)
	b := g.Backend(t)
	if _, err := b.List(within(t)); err != nil {
		t.Fatal(err)
	}
	g.ExpireAccess()
	before := g.Requests("POST /token")
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			if _, err := b.List(within(t)); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if n := g.Requests("POST /token") - before; n != 1 {
		t.Errorf("%d renewals", n)
	}
}

func TestATokenIsRenewedBeforeItsEnd(t *testing.T) {
	g := colabapitest.Start(t)
	b := g.Backend(t)
	g.SetAccessLife(30 * time.Second) // less than the reserve
	for range 2 {
		if _, err := b.List(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	if n := g.Requests("POST /token"); n != 3 { // the login, and each call
		t.Errorf("%d requests for tokens", n)
	}
}

func TestAnEndedLoginSaysWhatToDoAndANewOneWorks(t *testing.T) {
	g := colabapitest.Start(t)
	dir := g.Login(t)
	b, err := colabapi.New(colabapi.Config{Dir: dir, Getenv: g.Getenv})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	g.Revoke()
	_, err = b.List(within(t))
	if !errors.Is(err, vm.ErrNotLoggedIn) || !strings.Contains(err.Error(), "7 days") || !strings.Contains(err.Error(), "vm login") {
		t.Errorf("got %v", err)
	}
	text, err := os.ReadFile(filepath.Join(g.Login(t), loginFile))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, loginFile), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.List(within(t)); err != nil {
		t.Errorf("after a new login: %v", err)
	}
}

func TestWithoutALogin(t *testing.T) {
	g := colabapitest.Start(t)
	for name, content := range map[string]string{"missing": "", "damaged": `{"version":`, "no version": `{}`} {
		dir := t.TempDir()
		if content != "" {
			if err := os.WriteFile(filepath.Join(dir, loginFile), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b, err := colabapi.New(colabapi.Config{Dir: dir, Getenv: g.Getenv})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.List(within(t)); !errors.Is(err, vm.ErrNotLoggedIn) || !strings.Contains(err.Error(), "vm login") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
