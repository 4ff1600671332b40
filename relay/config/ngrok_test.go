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
		"domain as a URL":        {env: []string{"NGROK_DOMAIN", "https://my-name.ngrok-free.app/"}, domain: "my-name.ngrok-free.app"},
		"domain with a quote":    {env: []string{"NGROK_DOMAIN", `a".b`}, fault: "NGROK_DOMAIN"},
		"token of two words":     {env: []string{"NGROK_AUTHTOKEN", "secret words"}, fault: "NGROK_AUTHTOKEN"},
		"file that others read":  {env: []string{"NGROK_AUTHTOKEN_FILE", tokenFile(t, someToken, 0o640)}, fault: "chmod 600"},
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
