package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/relay/cli"
	"colabrelay/relay/config/configtest"
	"colabrelay/relay/terminal"
	"colabrelay/shared/within"
)

func TestCellsAreWrittenInThePersonsEditor(t *testing.T) {
	configtest.Home(t)
	dir := t.TempDir()
	path, kept := filepath.Join(dir, "a.ipynb"), filepath.Join(dir, "kept")
	script := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return file
	}
	environ := configtest.Environ()
	nb := func(want int, editor string, args ...string) string {
		t.Helper()
		s := newScreen(t)
		getenv := func(name string) string {
			if name == "EDITOR" {
				return editor
			}
			return environ(name)
		}
		code := run(t.Context(), append([]string{cli.CommandName, "nb"}, args...), getenv, terminal.Streams{In: s.slave, Out: s.slave, Err: s.slave})
		fmt.Fprint(s.slave, "\x00")
		within.Until(t, "it is shown", func() bool { return strings.Contains(s.text(), "\x00") })
		if code != want {
			t.Errorf("%q: exit code %d: %s", args, code, s.text())
		}
		return s.text()
	}
	nb(0, script("first", `printf 'x = 1\n' >"$1"`), "add", path)
	nb(0, script("second", `echo "$1" >`+kept+`; echo 'print(x)' >>"$1"`), "edit", path, "0")
	if got := nb(0, "", "cells", path, "0"); !strings.HasPrefix(got, "x = 1\r\nprint(x)\r\n") {
		t.Errorf("%q", got)
	}
	left := func() {
		t.Helper()
		if file, err := os.ReadFile(kept); err != nil || !strings.HasSuffix(strings.TrimSpace(string(file)), ".py") {
			t.Errorf("%q, %v", file, err)
		} else if _, err := os.Stat(strings.TrimSpace(string(file))); err == nil {
			t.Errorf("%q is left", file)
		}
	}
	left()
	if got := nb(0, script("dry", `echo "$1" >`+kept+`; echo 'y = 2' >>"$1"`), "edit", "--dry-run", path, "0"); !strings.Contains(got, "+y = 2\r\n") {
		t.Errorf("%q", got)
	}
	left()

	// Another program changes the cell meanwhile: what the person wrote is not lost.
	other := `echo '# mine' >"$1"; sed -i 's/x = 1/x = 2/' ` + path
	got := nb(1, script("third", other), "edit", path, "0")
	_, file, found := strings.Cut(got, "what you wrote is in ")
	file, _, _ = strings.Cut(strings.TrimSpace(file), "\r")
	if text, err := os.ReadFile(file); !found || err != nil || string(text) != "# mine\n" {
		t.Errorf("%q: %q, %v", got, text, err)
	}
	os.Remove(file)
	if got := nb(1, "no-such-editor", "edit", path, "0"); !strings.Contains(got, "set EDITOR to the command of your editor") {
		t.Errorf("%q", got)
	}
}
