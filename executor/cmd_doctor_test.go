package main

import (
	"strings"
	"testing"

	"colabrelay/executor/statedir"
)

// testdata/script/doctor.txtar has the doctor's other tests.
func TestDoctorReportsAStateDirThatAnotherExecutorUses(t *testing.T) {
	dir := t.TempDir()
	other, err := statedir.Open(dir)
	must(t, err)
	doctor := func() string {
		var out strings.Builder
		run(t.Context(), []string{"doctor", "--python", "/bin/false", "--state-dir", dir, "--listen", "127.0.0.1:0"}, env("HOME", t.TempDir()), nil, &out, &out)
		return out.String()
	}
	if out := doctor(); !strings.Contains(out, "fail  state     another executor uses "+dir+": stop it") {
		t.Errorf("while it is used, the doctor says:\n%s", out)
	}
	other.Close()
	if out := doctor(); !strings.Contains(out, "ok    state     "+dir+"\n") {
		t.Errorf("once it is free, the doctor says:\n%s", out)
	}
}
