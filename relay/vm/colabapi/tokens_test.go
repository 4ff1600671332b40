package colabapi_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabapi"
	"colabrelay/relay/vm/colabapi/colabapitest"
	"colabrelay/shared/within"
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
	if _, err := b.List(within.Context(t)); err != nil || got.Load() != want {
		t.Errorf("sent project %q, %v", got.Load(), err)
	}
}

func TestALoginOfOnesOwnClientNamesNoProject(t *testing.T) {
	g := colabapitest.Start(t)
	mustSendProject(t, g, g.Login(t), "")
}

func TestOneRenewalServesAllCallers(t *testing.T) {
	g := colabapitest.Start(t)
	b := g.Backend(t)
	if _, err := b.List(within.Context(t)); err != nil {
		t.Fatal(err)
	}
	g.ExpireAccess()
	before := g.Requests("POST /token")
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			if _, err := b.List(within.Context(t)); err != nil {
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
		if _, err := b.List(within.Context(t)); err != nil {
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
	_, err = b.List(within.Context(t))
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
	if _, err := b.List(within.Context(t)); err != nil {
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
		if _, err := b.List(within.Context(t)); !errors.Is(err, vm.ErrNotLoggedIn) || !strings.Contains(err.Error(), "vm login") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
