package colabapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabapi/colabapitest"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

func TestEachRefusalOfACallHasItsError(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		reason string
		class  error // nil for none of relay/vm's
		want   string
	}{
		"token":        {401, "", vm.ErrNotLoggedIn, "vm login"},
		"scope":        {403, "ACCESS_TOKEN_SCOPE_INSUFFICIENT", vm.ErrNotLoggedIn, "vm login"},
		"API off":      {403, "SERVICE_DISABLED", vm.ErrDenied, "console.cloud.google.com/apis/library/colaboratory.googleapis.com"},
		"project":      {403, "USER_PROJECT_DENIED", vm.ErrDenied, "set-quota-project"},
		"allowlist":    {403, "", vm.ErrDenied, "beta"},
		"no such call": {404, "", nil, "HTTP 404"},
		"bad request":  {400, "", nil, "HTTP 400"},
		"redirect":     {302, "", nil, "HTTP 302"},
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
			_, err := b.List(within.Context(t))
			if err == nil || test.class != nil && !errors.Is(err, test.class) || errors.Is(err, vm.ErrGone) || !strings.Contains(err.Error(), test.want) || strings.ContainsAny(err.Error(), "\x1b\n") {
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
	tier.Long(t)
	for name, answer := range map[string]func(http.ResponseWriter){
		"404 page":     func(w http.ResponseWriter) { http.Error(w, "<html>login</html>", 404) },
		"409 page":     func(w http.ResponseWriter) { http.Error(w, "{}", http.StatusConflict) },
		"other code":   func(w http.ResponseWriter) { w.WriteHeader(404); fmt.Fprint(w, `{"error":{"code":403}}`) },
		"page":         func(w http.ResponseWriter) { fmt.Fprint(w, "<html>login</html>") },
		"endless":      func(w http.ResponseWriter) { flood(w) },
		"null":         func(w http.ResponseWriter) { fmt.Fprint(w, " null") },
		"no such call": func(w http.ResponseWriter) { colabapitest.WriteError(w, 404, "", "Method not found.") },
		"aborted": func(w http.ResponseWriter) {
			w.WriteHeader(409)
			fmt.Fprint(w, `{"error":{"code":409,"status":"ABORTED"}}`)
		},
		"another's VM":   func(w http.ResponseWriter) { fmt.Fprint(w, `{"name":"runtimes/another"}`) },
		"deep":           func(w http.ResponseWriter) { fmt.Fprint(w, strings.Repeat("[", 1<<20)) },
		"wrong types":    func(w http.ResponseWriter) { fmt.Fprint(w, `{"runtimes":7,"name":[]}`) },
		"hostile cookie": func(w http.ResponseWriter) { w.Header().Set("Set-Cookie", "a=b"); w.WriteHeader(418) },
	} {
		t.Run(name, func(t *testing.T) {
			g, b, id := started(t)
			g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodDelete && r.URL.Path != "/v1beta/runtimespecs" {
					answer(w)
					return true
				}
				return false
			})
			if err := b.Touch(within.Context(t), id); err == nil || errors.Is(err, vm.ErrGone) {
				t.Errorf("touch: %v", err)
			}
			if err := b.Delete(within.Context(t), id); err == nil || errors.Is(err, vm.ErrGone) {
				t.Errorf("delete: %v", err)
			}
			if all, err := b.List(within.Context(t)); err == nil && name != "another's VM" {
				t.Errorf("list: %+v", all)
			}
			if _, err := b.Create(within.Context(t), vm.NewID(), vm.Spec{}); err == nil || errors.Is(err, vm.ErrExists) || errors.Is(err, vm.ErrGone) {
				t.Errorf("create: %v", err)
			}
		})
	}
}

// A call that the API no longer has, and a VM that a lookup misses, are no proof of its end.
func TestAVMThatIsListedIsNotGone(t *testing.T) {
	g, b, id := started(t)
	g.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || r.URL.Path != "/v1beta/runtimes/"+id {
			return false
		}
		colabapitest.WriteError(w, 404, "", "Method not found.")
		return true
	})
	if err := b.Touch(within.Context(t), id); err == nil || errors.Is(err, vm.ErrGone) || !strings.Contains(err.Error(), "is still listed") {
		t.Errorf("got %v", err)
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

func TestAllPagesOfAListAreRead(t *testing.T) {
	g := colabapitest.Start(t)
	g.PageSize = 3
	for i := range 10 {
		g.Add(fmt.Sprintf("another-%d", i))
	}
	if all, err := g.Backend(t).List(within.Context(t)); err != nil || len(all) != 10 || all[9].ID != "another-9" {
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
			if all, err := b.List(within.Context(t)); err == nil || all != nil {
				t.Errorf("%d, %v", len(all), err)
			}
			if n := g.Requests("GET /v1beta/runtimes"); n > 50 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

func TestAnOverloadedAPIIsAskedAgainWhenItSays(t *testing.T) {
	tier.Long(t)
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
	if _, err := b.List(within.Context(t)); err != nil || len(times) != 3 {
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
	if _, err := b.List(within.Context(t)); err == nil || !strings.Contains(err.Error(), "wait 1h") || g.Requests("GET /v1beta/runtimes") != 1 {
		t.Errorf("got %v", err)
	}
}
