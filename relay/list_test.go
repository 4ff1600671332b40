package main

import (
	"strings"
	"testing"

	"colabrelay/shared/auth"
)

func TestRuntimesAreListedAndForgotten(t *testing.T) {
	home(t)
	if code, out, errs := relay(t, environ(), "", "runtimes"); code != 1 || out != "" || !strings.Contains(errs, "not paired with a runtime yet") {
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
	if code, _, errs := relay(t, environ(), "", "unpair", "b"); code != 1 || !strings.Contains(errs, `the paired runtimes are "a", "second"`) {
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
