package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/relay/config/configtest"
)

const someToken = "2abcDEFghiJKLmnoPQRstuVWXyz_0123456789ABCDEFGHIJK"

// tokenFile writes a file with these contents and mode, and returns its path.
func tokenFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadNgrok(t *testing.T) {
	for name, c := range map[string]struct {
		env    []string
		token  Token
		domain string
		fault  string // part of the error
	}{
		"nothing set":            {},
		"variable":               {env: []string{"NGROK_AUTHTOKEN", someToken}, token: someToken},
		"file":                   {env: []string{"NGROK_AUTHTOKEN_FILE", tokenFile(t, someToken+"\n", 0o600)}, token: someToken},
		"the variable is first":  {env: []string{"NGROK_AUTHTOKEN", someToken, "NGROK_AUTHTOKEN_FILE", "/no/such/file"}, token: someToken},
		"domain":                 {env: []string{"NGROK_DOMAIN", "My-name.ngrok-free.app"}, domain: "My-name.ngrok-free.app"},
		"domain as a URL":        {env: []string{"NGROK_DOMAIN", "https://my-name.ngrok-free.app/"}, domain: "my-name.ngrok-free.app"},
		"domain with a path":     {env: []string{"NGROK_DOMAIN", "a.b/c"}, fault: "NGROK_DOMAIN"},
		"domain without dots":    {env: []string{"NGROK_DOMAIN", "localhost"}, fault: "NGROK_DOMAIN"},
		"domain with a quote":    {env: []string{"NGROK_DOMAIN", `a".b`}, fault: "NGROK_DOMAIN"},
		"token of two words":     {env: []string{"NGROK_AUTHTOKEN", "secret words"}, fault: "NGROK_AUTHTOKEN"},
		"token too long":         {env: []string{"NGROK_AUTHTOKEN", strings.Repeat("a", 1025)}, fault: "NGROK_AUTHTOKEN"},
		"no file":                {env: []string{"NGROK_AUTHTOKEN_FILE", "/no/such/file"}, fault: "/no/such/file"},
		"folder":                 {env: []string{"NGROK_AUTHTOKEN_FILE", t.TempDir()}, fault: "not a regular file"},
		"empty file":             {env: []string{"NGROK_AUTHTOKEN_FILE", tokenFile(t, "\n", 0o600)}, fault: "NGROK_AUTHTOKEN_FILE"},
		"file that others read":  {env: []string{"NGROK_AUTHTOKEN_FILE", tokenFile(t, someToken, 0o640)}, fault: "chmod 600"},
		"file with many bytes":   {env: []string{"NGROK_AUTHTOKEN_FILE", tokenFile(t, strings.Repeat("secret", 1000), 0o600)}, fault: "too long"},
		"file with another text": {env: []string{"NGROK_AUTHTOKEN_FILE", tokenFile(t, "authtoken: secret", 0o600)}, fault: "NGROK_AUTHTOKEN_FILE"},
	} {
		got, err := LoadNgrok(Settings{Getenv: configtest.Environ(c.env...)})
		switch {
		case c.fault == "" && (err != nil || got != Ngrok{c.token, c.domain}):
			t.Errorf("%s: %v, %v", name, got, err)
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault) || strings.Contains(err.Error(), "secret")):
			t.Errorf("%s: error %v, want %q and no content of the file", name, err, c.fault)
		}
	}
}

func TestAWrongTokenFileIsReportedWithTheOtherSettings(t *testing.T) {
	configtest.Home(t)
	c := Load(Settings{Getenv: configtest.Environ("NGROK_AUTHTOKEN_FILE", "/no/such/file", "RELAY_HOLD", "soon")})
	if err := c.Err(); err == nil || !strings.Contains(err.Error(), "NGROK_AUTHTOKEN_FILE") || !strings.Contains(err.Error(), "RELAY_HOLD") {
		t.Errorf("got %v", err)
	}
}

func TestATokenIsNeverPrinted(t *testing.T) {
	n := struct{ N Ngrok }{Ngrok{Token: someToken}}
	asJSON, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprint(n), fmt.Sprintf("%+v %#v %q %x", n, n, n.N.Token, n.N.Token), string(asJSON)} {
		if strings.Contains(text, someToken) || strings.Contains(text, fmt.Sprintf("%x", someToken)) {
			t.Errorf("the token is in %q", text)
		}
	}
}
