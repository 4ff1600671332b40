package colabapi_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"colabrelay/relay/vm"
	"colabrelay/relay/vm/colabapi"
	"colabrelay/relay/vm/colabapi/colabapitest"
	"colabrelay/shared/within"
)

const loginFile = "google-login.json"

func TestALoginIsKeptInAFileOfThisUserOnly(t *testing.T) {
	g := colabapitest.Start(t)
	dir := t.TempDir()
	// A login file that others could read is closed before it gets the new token.
	if err := os.WriteFile(filepath.Join(dir, loginFile), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	var shown string
	err := colabapi.Login(within.Context(t), colabapi.LoginRequest{Dir: dir, ClientFile: g.ClientFile(t), Getenv: g.Getenv, Open: g.Approve, Show: func(url string) { shown = url }})
	if err != nil {
		t.Fatalf("login: %v", err)
	}
	info, err := os.Stat(filepath.Join(dir, loginFile))
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for _, secret := range g.Secrets() {
		if strings.Contains(shown, secret) {
			t.Error("the address that people see contains a secret")
		}
	}
	b, err := colabapi.New(colabapi.Config{Dir: dir, Getenv: g.Getenv})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if specs, err := b.Specs(within.Context(t)); err != nil || len(specs) != 6 {
		t.Errorf("%v, %v", specs, err)
	}
}

func TestLoginsThatGoogleOrThePersonRefuse(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*colabapitest.Google, *colabapi.LoginRequest)
		want   string
	}{
		"declined": {func(g *colabapitest.Google, r *colabapi.LoginRequest) { r.Open = g.Decline }, "declined"},
		"not on loopback": {func(_ *colabapitest.Google, r *colabapi.LoginRequest) {
			r.Getenv = env(colabapi.TestVariable, "http://example.com:80")
		}, "for tests"},
		"Google's service": {func(_ *colabapitest.Google, r *colabapi.LoginRequest) { r.Getenv = env("", "") }, "is not Google's"},
	} {
		t.Run(name, func(t *testing.T) {
			g := colabapitest.Start(t)
			r := colabapi.LoginRequest{Dir: t.TempDir(), ClientFile: g.ClientFile(t), Getenv: g.Getenv, Open: g.Approve}
			test.change(g, &r)
			err := colabapi.Login(within.Context(t), r)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.ContainsRune(err.Error(), '\x1b') {
				t.Errorf("got %q", err)
			}
			if _, err := os.Stat(filepath.Join(r.Dir, loginFile)); err == nil {
				t.Error("a login was saved")
			}
			for _, secret := range g.Secrets() {
				if err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("the error contains a secret: %v", err)
				}
			}
		})
	}
}

func env(name, value string) func(string) string {
	return func(asked string) string {
		if asked == name {
			return value
		}
		return ""
	}
}

func TestApplicationDefaultCredentials(t *testing.T) {
	for kind, want := range map[string]string{
		"authorized_user": "",
		"service_account": "belong to a person",
	} {
		t.Run(kind, func(t *testing.T) {
			g, dir := colabapitest.Start(t), t.TempDir()
			getenv := both(g.Getenv, env("GOOGLE_APPLICATION_CREDENTIALS", g.DefaultsFile(t, kind)))
			err := colabapi.Login(within.Context(t), colabapi.LoginRequest{Dir: dir, Getenv: getenv})
			if want != "" {
				if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, vm.ErrNotLoggedIn) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			text, _ := os.ReadFile(filepath.Join(dir, loginFile))
			for _, secret := range g.Secrets() {
				if strings.Contains(string(text), secret) {
					t.Error("the login file repeats a secret of the credentials")
				}
			}
			b, err := colabapi.New(colabapi.Config{Dir: dir, Getenv: g.Getenv})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			if _, err := b.List(within.Context(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

func both(first, second func(string) string) func(string) string {
	return func(name string) string {
		if v := first(name); v != "" {
			return v
		}
		return second(name)
	}
}
