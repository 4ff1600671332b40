package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/auth"
)

// mine is the secret that `relay init` made for a runtime.
func mine(t *testing.T, name string) auth.Secret {
	t.Helper()
	store, err := openPairings()
	if err != nil {
		t.Fatal(err)
	}
	secret, err := store.SecretOf(name)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func TestPairingSaysWhichAddressItReplaces(t *testing.T) {
	for name, command := range map[string]func(t *testing.T) (args []string, url string){
		"pair": func(t *testing.T) ([]string, string) {
			url := executor(t, mine(t, "default"))
			return []string{"pair", url}, url
		},
		"init": func(*testing.T) ([]string, string) {
			return []string{"init", "--domain", "new.invalid"}, "https://new.invalid"
		},
	} {
		t.Run(name, func(t *testing.T) {
			home(t)
			if code, _, errs := relay(t, environ(), "", "init", "--domain", "old.invalid"); code != 0 {
				t.Fatal(errs)
			}
			args, url := command(t)
			code, out, errs := relay(t, environ(), "", args...)
			if code != 0 || strings.Count(out, `Paired "default" with `+url+` (replaces https://old.invalid)`) != 1 {
				t.Errorf("%d %q %q", code, out, errs)
			}
			if _, out, _ = relay(t, environ(), "", args...); strings.Contains(out, "replaces") {
				t.Errorf("the same again: %q", out)
			}
		})
	}
}

func TestAFailedPairKeepsTheWorkingPairing(t *testing.T) {
	secret := auth.GenerateSecret()
	for name, failing := range map[string]func(t *testing.T) string{
		"nothing listens": func(*testing.T) string {
			return auth.Pairing{URL: "http://127.0.0.1:1", Secret: auth.GenerateSecret()}.String()
		},
		"another's executor": func(t *testing.T) string {
			return auth.Pairing{URL: executor(t, auth.GenerateSecret()), Secret: auth.GenerateSecret()}.String()
		},
		"the address alone": func(*testing.T) string { return "http://127.0.0.1:1" },
		"the secret was lost": func(t *testing.T) string {
			return auth.Pairing{URL: executor(t, secret), Secret: auth.GenerateSecret()}.String()
		},
	} {
		t.Run(name, func(t *testing.T) {
			home(t)
			works := executor(t, secret)
			if code, _, errs := relay(t, environ(), "", "pair", auth.Pairing{URL: works, Secret: secret}.String()); code != 0 {
				t.Fatal(errs)
			}
			code, out, errs := relay(t, environ(), "", "pair", failing(t))
			if code != 1 || !strings.Contains(errs, "stays paired with "+works) || !strings.Contains(errs, "--name ANOTHER") || !strings.Contains(out, "not connected") {
				t.Errorf("%d %q %q", code, out, errs)
			}
			if strings.Contains(out+errs, secret.Reveal()) {
				t.Error("the secret is printed")
			}
			if code, out, errs := relay(t, environ(), "", "status"); code != 0 || !strings.Contains(out, works) {
				t.Errorf("afterwards: %d %q %q", code, out, errs)
			}
			if got := mine(t, "default"); !got.Equal(secret) {
				t.Error("the secret was replaced")
			}
			next := auth.Pairing{URL: executor(t, secret), Secret: secret}
			if code, out, errs := relay(t, environ(), "", "pair", next.String()); code != 0 || !strings.Contains(out, "replaces "+works) {
				t.Errorf("one that answers: %d %q %q", code, out, errs)
			}
		})
	}
}

func TestAFailedPairKeepsASecretThatHasNoAddressYet(t *testing.T) {
	home(t)
	relay(t, environ(), "", "init")
	before := mine(t, "default")
	code, _, errs := relay(t, environ(), "", "pair", auth.Pairing{URL: "http://127.0.0.1:1", Secret: auth.GenerateSecret()}.String())
	if code != 1 || !strings.Contains(errs, "keeps the secret that `relay init` made") || !mine(t, "default").Equal(before) {
		t.Errorf("%d %q", code, errs)
	}
	// Its own address, once known, loses nothing.
	if code, out, errs := relay(t, environ(), "", "pair", "http://127.0.0.1:1"); code != 0 || !strings.Contains(out, "The pairing is kept") {
		t.Errorf("%d %q %q", code, out, errs)
	}
}

func TestADamagedListIsKeptAndANewOneBegunAtOnce(t *testing.T) {
	for name, args := range map[string][]string{
		"pair": {"pair", auth.Pairing{URL: "https://new.invalid", Secret: auth.GenerateSecret()}.String()},
		"init": {"init", "--domain", "new.invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(home(t), "config", "colab-relay")
			write(t, filepath.Join(dir, "runtimes.json"), []byte(`{"vers`))
			code, out, errs := relay(t, environ(), "", args...)
			if code != 0 || !strings.Contains(out, "Paired") || strings.Count(errs, "\n") != 1 || strings.Count(errs, "a new list was started") != 1 || strings.Contains(errs, "again") {
				t.Errorf("%d %q %q", code, out, errs)
			}
			kept, err := filepath.Glob(filepath.Join(dir, "runtimes.json.damaged-*"))
			if err != nil || len(kept) != 1 || !strings.Contains(errs, kept[0]) {
				t.Fatalf("kept %q, %v, said %q", kept, err, errs)
			}
			if text, err := os.ReadFile(kept[0]); err != nil || string(text) != `{"vers` {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}

func TestAnAddressWithoutItsSchemeIsPointedAtIt(t *testing.T) {
	home(t)
	code, _, errs := relay(t, environ(), "", "pair", "x.example.com")
	if code != 1 || !strings.Contains(errs, "not a pairing string") || !strings.Contains(errs, "https://…") {
		t.Errorf("%d %q", code, errs)
	}
	if code, _, errs := relay(t, environ(), "", "pair", "colab-relay:cut"); code != 1 || strings.Contains(errs, "https://…") {
		t.Errorf("a cut string: %d %q", code, errs)
	}
	if _, out, _ := relay(t, environ(), "", "pair", "--help"); !strings.Contains(out, "URL]") || !strings.Contains(out, "https://") {
		t.Errorf("%q", out)
	}
}
