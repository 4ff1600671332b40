package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/auth"
)

func TestRuntimesAreListedAndForgotten(t *testing.T) {
	home(t)
	if code, out, errs := relay(t, environ(), "", "runtimes"); code != 1 || out != "" || !strings.Contains(errs, "nothing is paired yet") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	secret := auth.GenerateSecret()
	for name, url := range map[string]string{"a": "http://127.0.0.1:1", "second": "http://127.0.0.1:2"} {
		if code, _, errs := relay(t, environ(), "", "pair", "--name", name, auth.Pairing{URL: url, Secret: secret}.String()); code != 0 {
			t.Fatal(errs)
		}
	}
	code, out, errs := relay(t, environ(), "", "runtimes")
	want := "NAME    URL                 KEY_ID            \na       http://127.0.0.1:1  KEY  \nsecond  http://127.0.0.1:2  KEY  \n"
	if code != 0 || strings.ReplaceAll(out, secret.KeyID(), "KEY") != want || !strings.Contains(errs, "no runtime is the default one") {
		t.Errorf("%d\n%s%s", code, out, errs)
	}
	_, out, _ = relay(t, environ("COLAB_URL", "https://x.example", "COLAB_SECRET", secret.Reveal()), "", "runtimes")
	if !strings.Contains(out, "env     https://x.example") || strings.Count(out, "default") != 1 || strings.Contains(out, secret.Reveal()) {
		t.Errorf("%s", out)
	}
	if code, _, errs := relay(t, environ(), "", "unpair", "b"); code != 1 || !strings.Contains(errs, `paired are "a", "second"`) {
		t.Errorf("%d %q", code, errs)
	}
	if code, _, errs := relay(t, environ(), "", "unpair", "a"); code != 0 {
		t.Errorf("%d %q", code, errs)
	}
	if _, out, _ := relay(t, environ(), "", "runtimes"); strings.Contains(out, "127.0.0.1:1") || !strings.Contains(out, "default") {
		t.Errorf("%s", out)
	}
}

func TestWordsAfterAPairingStringAreRefusedInOneLine(t *testing.T) {
	home(t)
	p := auth.Pairing{URL: "http://127.0.0.1:1", Secret: auth.GenerateSecret()}.String()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"pair", p, "vm2"}, `"vm2" after the pairing string`},
		{[]string{"pair", "relay", "pair", p, "my", "vm"}, `"my vm" after the pairing string`},
		{[]string{"pair", "some", "words"}, "not a pairing string"},
	} {
		code, out, errs := relay(t, environ(), "", c.args...)
		if code != 1 || out != "" || !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 || strings.Contains(errs, p[20:40]) {
			t.Errorf("%v: %d %q %q", c.args, code, out, errs)
		}
	}
	for _, args := range [][]string{{"pair", "relay", "pair", p}, {"pair", p[:30], p[30:]}} {
		if code, _, errs := relay(t, environ(), "", args...); code != 0 {
			t.Errorf("%v: %q", args, errs)
		}
	}
}

func TestAnAddressAloneGoesWithTheSecretOfInit(t *testing.T) {
	home(t)
	code, _, errs := relay(t, environ(), "", "pair", "https://x.example")
	if code != 1 || !strings.Contains(errs, "relay init") || strings.Count(errs, "\n") != 1 {
		t.Errorf("%d %q", code, errs)
	}
	relay(t, environ(), "", "init")
	store, err := openPairings()
	if err != nil {
		t.Fatal(err)
	}
	secret, err := store.KeptSecret()
	if err != nil {
		t.Fatal(err)
	}
	url := executor(t, secret)
	code, out, errs := relay(t, environ(), "", "pair", "--name", "vm", url)
	if code != 0 || !strings.Contains(out, " connected: executor 9.9") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if code, _, errs := relay(t, environ(), "", "pair", "http://u:p@x.example"); code != 1 || strings.Contains(errs, "u:p") {
		t.Errorf("%d %q", code, errs)
	}
}

func TestInitMakesASecretOnceAndPairsADomainForGood(t *testing.T) {
	dir := home(t)
	code, out, errs := relay(t, environ(), "", "init")
	if code != 0 || !strings.Contains(out, "was made") || !strings.Contains(out, "NGROK_AUTHTOKEN") || !strings.Contains(out, "relay init --domain") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	text, err := os.ReadFile(filepath.Join(dir, "config", "colab-relay", "executor-secret"))
	secret := strings.TrimSpace(string(text))
	if err != nil || !strings.Contains(out, "EXECUTOR_SECRET  "+secret+"\n") {
		t.Errorf("%v %q", err, out)
	}
	for _, domain := range []string{"me.ngrok-free.app", "https://me.ngrok-free.app/"} {
		code, out, errs := relay(t, environ(), "", "init", "--domain", domain)
		if code != 0 || !strings.Contains(out, secret) || !strings.Contains(out, "NGROK_DOMAIN     me.ngrok-free.app\n") || strings.Contains(out, "was made") {
			t.Errorf("%s: %d %q %q", domain, code, out, errs)
		}
	}
	store, err := openPairings()
	if err != nil {
		t.Fatal(err)
	}
	if r, err := store.Get("default"); err != nil || r.URL != "https://me.ngrok-free.app" || r.Secret.Reveal() != secret {
		t.Errorf("%v %v", r.URL, err)
	}
	for _, domain := range []string{"me", "http://me.app", "me.app/x", "me.app:8", "u@me.app", "me.app?x", "a b.app"} {
		if code, _, errs := relay(t, environ(), "", "init", "--domain", domain); code != 1 || !strings.Contains(errs, "want a name such as") {
			t.Errorf("%s: %d %q", domain, code, errs)
		}
	}
}
