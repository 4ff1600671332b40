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
	err := colabapi.Login(within.Context(t), colabapi.LoginRequest{Dir: dir, ClientFile: g.ClientFile(t), Transport: g, Open: g.Approve, Show: func(url string) { shown = url }})
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
	b := colabapi.New(colabapi.Config{Dir: dir, Transport: g})
	defer b.Close()
	if specs, err := b.Specs(within.Context(t)); err != nil || len(specs) != 6 {
		t.Errorf("%v, %v", specs, err)
	}
}

func TestALoginThatThePersonDeclines(t *testing.T) {
	g := colabapitest.Start(t)
	r := colabapi.LoginRequest{Dir: t.TempDir(), ClientFile: g.ClientFile(t), Transport: g, Open: g.Decline}
	err := colabapi.Login(within.Context(t), r)
	if err == nil || !strings.Contains(err.Error(), "declined") || strings.ContainsRune(err.Error(), '\x1b') {
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
}

func TestApplicationDefaultCredentials(t *testing.T) {
	for kind, want := range map[string]string{
		"authorized_user": "",
		"service_account": "belong to a person",
	} {
		t.Run(kind, func(t *testing.T) {
			g, dir := colabapitest.Start(t), t.TempDir()
			path := g.DefaultsFile(t, kind)
			getenv := func(name string) string { return map[string]string{"GOOGLE_APPLICATION_CREDENTIALS": path}[name] }
			err := colabapi.Login(within.Context(t), colabapi.LoginRequest{Dir: dir, Getenv: getenv, Transport: g})
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
			b := colabapi.New(colabapi.Config{Dir: dir, Transport: g})
			defer b.Close()
			if _, err := b.List(within.Context(t)); err != nil {
				t.Error(err)
			}
		})
	}
}
