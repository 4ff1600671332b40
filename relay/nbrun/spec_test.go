package nbrun

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/relay/checkpoint"
	"colabrelay/shared/contract"
)

func (b *book) text() string {
	b.t.Helper()
	text, err := os.ReadFile(b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}

func TestOutputsMayGoIntoACopyOrNowhere(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, "parameters| n = 1", "print(n)")
	before := b.text()
	s := b.spec()
	s.Parameters, s.Unsaved = `{"n": 5}`, true
	if got := b.finish(s, m, StatusSucceeded); got.printed != "5\n" || b.text() != before {
		t.Errorf("printed %q; the file changed: %v", got.printed, b.text() != before)
	}
	s.Unsaved, s.OutputPath = false, filepath.Join(t.TempDir(), "copy.ipynb")
	got := b.finish(s, m, StatusSucceeded)
	if b.text() != before || got.Run.Spec.OutputPath != s.OutputPath {
		t.Errorf("the file changed: %v; outputs are in %q", b.text() != before, got.Run.Spec.OutputPath)
	}
	copied := &book{t: t, path: s.OutputPath}
	if copied.outputs("c1") != "5\n" {
		t.Errorf("the copy shows %q", copied.outputs("c1"))
	}
	if got := b.advance(s, m, long); !errors.Is(got.err, ErrOutputPath) {
		t.Errorf("over an existing file: %v", got.err)
	}
}

func TestADryRunSubmitsNothing(t *testing.T) {
	t.Parallel()
	m := borrow(t, oldStack(t))
	b := write(t, src(says("c0")), src("skip-execution| "+says("c1")), src(says("c2")))
	before := b.text()
	s := b.spec()
	s.DryRun, s.Cells = true, "0-1"
	got := b.advance(s, m, long)
	if got.err != nil || got.Status() != StatusPlanned || len(got.Plan) != 3 || got.CanContinue {
		t.Fatalf("%v %+v", got.err, got.Outcome)
	}
	for i, want := range []bool{true, false, false} {
		if p := got.Plan[i]; p.Run != want || !want && p.Why == "" {
			t.Errorf("cell %d: %+v", i, p)
		}
	}
	m.ranIs()
	if b.text() != before {
		t.Error("the file changed")
	}
	if _, err := Load(b.dir, b.path); err == nil {
		t.Error("there is a record")
	}
}

func TestArgumentsThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	b := write(t, "1")
	if r, err := Open(b.dir, Spec{Path: b.path, Parameters: "[1]"}); !errors.Is(err, ErrSpec) {
		t.Errorf("%v %v", r, err)
	}
	if err := os.WriteFile(b.path, []byte(`{"cells": [], "metadata": {"kernelspec": {"language": "R", "name": "ir", "display_name": "R"}, "language_info": {"name": "R"}}, "nbformat": 4, "nbformat_minor": 5}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(b.dir, b.spec()); !errors.Is(err, ErrNotPython) {
		t.Errorf("a notebook for R: %v", err)
	}
}

// A damaged record is never continued and never replaced unasked.
func TestADamagedRecordIsKeptAside(t *testing.T) {
	t.Parallel()
	b := write(t, "1")
	vm := &enemy{answer: func(*contract.Execution, contract.Submit) {}}
	got := b.finish(b.spec(), vm, StatusSucceeded)
	path := checkpoint.Path(b.dir, Name(got.Record.Path))
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got = b.advance(b.spec(), vm, long); !errors.Is(got.err, ErrDamaged) {
		t.Fatalf("%v", got.err)
	}
	s := b.spec()
	s.Restart = true
	b.finish(s, vm, StatusSucceeded)
	if aside, _ := filepath.Glob(path + ".damaged-*"); len(aside) != 1 {
		t.Errorf("kept aside: %v", aside)
	}
}
