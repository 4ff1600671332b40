package bridge

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"colabrelay/shared/enrollment"
)

func TestOneCallPairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		paired, err := s.start(Request{})
		if err != nil {
			t.Fatal(err)
		}
		if all := s.stored(); !slices.Equal(all, []string{"default https://vm.example"}) || paired.Already || paired.Runtime.Name != "default" {
			t.Errorf("stored %q, returned %+v", all, paired)
		}
		if want := (enrollment.Grant{Secret: paired.Runtime.Secret.Reveal(), Tunnel: "ngrok", NgrokToken: someToken, Domain: "a.example"}); s.vm.grants[0] != want {
			t.Errorf("the VM got another grant")
		}
		if titles := s.nb.titles(); !slices.Equal(titles, []string{"x = 1"}) {
			t.Errorf("the notebook has the cells %q", titles)
		}
		if !slices.Equal(s.steps, []string{stepReady, stepStart, stepTunnel, stepCheck}) {
			t.Errorf("steps %q", s.steps)
		}
		if len(paired.Notes) != 1 || paired.Notes[0] != noteOffer {
			t.Errorf("notes %q", paired.Notes)
		}
		noSecrets(t, s.nb.seen.String(), paired.Runtime.Secret.Reveal(), someToken)
	})
}

// noSecrets fails if text holds one of the secrets in any usual form.
func noSecrets(t *testing.T, text string, secrets ...string) {
	t.Helper()
	for _, secret := range secrets {
		for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)), base64.RawURLEncoding.EncodeToString([]byte(secret)), hex.EncodeToString([]byte(secret)), url.QueryEscape(secret)} {
			if strings.Contains(text, form) {
				t.Error("a secret was shown")
			}
		}
	}
}
