package colabapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabapi/colabapitest"
	"colabrelay/shared/within"
)

// A login page of a hotel's network, or a proxy's error, proves nothing about VMs.
func TestAnswersThatAreNotTheAPIs(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"404 page":     func(w http.ResponseWriter) { http.Error(w, "<html>login</html>", 404) },
		"endless":      func(w http.ResponseWriter) { flood(w) },
		"no such call": func(w http.ResponseWriter) { colabapitest.WriteError(w, 404, "", "Method not found.") },
		"aborted": func(w http.ResponseWriter) {
			w.WriteHeader(409)
			fmt.Fprint(w, `{"error":{"code":409,"status":"ABORTED"}}`)
		},
		"another's VM": func(w http.ResponseWriter) { fmt.Fprint(w, `{"name":"runtimes/another"}`) },
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
			if err := b.Create(within.Context(t), vm.NewID(), vm.Spec{}); err == nil || errors.Is(err, vm.ErrExists) || errors.Is(err, vm.ErrGone) {
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
