package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pairers are the commands that pair "default" with https://HOST; the hosts answer nothing.
var pairers = map[string]func(host string) []string{
	"pair": func(host string) []string { return []string{"pair", "https://" + host} },
	"init": func(host string) []string { return []string{"init", "--domain", host} },
}

func TestPairingSaysWhichAddressItReplaces(t *testing.T) {
	for name, args := range pairers {
		t.Run(name, func(t *testing.T) {
			home(t)
			if code, _, errs := relay(t, environ(), "", "init", "--domain", "old.invalid"); code != 0 {
				t.Fatal(errs)
			}
			code, out, errs := relay(t, environ(), "", args("new.invalid")...)
			if code != 0 || strings.Count(out, `Paired "default" with https://new.invalid (replaces https://old.invalid)`) != 1 {
				t.Errorf("%d %q %q", code, out, errs)
			}
			if _, out, _ = relay(t, environ(), "", args("new.invalid")...); strings.Contains(out, "replaces") {
				t.Errorf("the same again: %q", out)
			}
		})
	}
}

func TestADamagedListIsKeptAndANewOneBegunAtOnce(t *testing.T) {
	for name, args := range pairers {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(home(t), "config", "colab-relay")
			relay(t, environ(), "", "init")
			write(t, filepath.Join(dir, "runtimes.json"), []byte(`{"vers`))
			code, out, errs := relay(t, environ(), "", args("new.invalid")...)
			if code != 0 || !strings.Contains(out, "Paired") || strings.Count(errs, "\n") != 1 || strings.Count(errs, "a new list is begun") != 1 || strings.Contains(errs, "again") {
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
