package main

import (
	"bytes"
	"strings"
	"testing"

	"colabrelay/relay/config/configtest"
	"colabrelay/relay/pairing"
	"colabrelay/relay/terminal"
	"colabrelay/shared/auth"
)

func TestAloneOnATerminalItSaysWhatToDo(t *testing.T) {
	configtest.Home(t)
	store, err := pairing.OpenDefault()
	if err != nil {
		t.Fatal(err)
	}
	says := func(want ...string) {
		t.Helper()
		s := newScreen(t)
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"/usr/bin/crelay"}, configtest.Environ(), terminal.Streams{In: s.slave, Out: &out, Err: &errs})
		for _, each := range want {
			if !strings.Contains(out.String(), each) {
				t.Errorf("%q is not in %q", each, out.String())
			}
		}
		if code != 0 || errs.Len() > 0 {
			t.Errorf("exit code %d, %s", code, errs.String())
		}
	}
	pair := func(name string) {
		t.Helper()
		if _, err := store.Put(pairing.Runtime{Name: name, URL: "https://x.example", Secret: auth.GenerateSecret()}); err != nil {
			t.Fatal(err)
		}
	}
	says("not paired with a VM yet", "  crelay bootstrap ", "  crelay pair ", "  crelay install HOST ", "`crelay --help`")
	pair("a")
	says(`The default runtime is "a", https://x.example.`, "  crelay status ", "  crelay run -c ")
	pair("b")
	says("several runtimes are paired", "  crelay runtimes ")
}
