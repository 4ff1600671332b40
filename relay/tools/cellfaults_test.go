package tools

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"colabrelay/relay/nbrun"
	"colabrelay/relay/notebook"
	"colabrelay/shared/bounded"
)

func TestEachErrorOfANotebookHasItsCodeAndANextStep(t *testing.T) {
	c := &call{Relay: New(Config{})}
	for _, test := range []struct {
		err        error
		code, hint string
	}{
		{notebook.ErrNotNotebook, "notebook_damaged", "intact copy"},
		{notebook.ErrCellChanged, "changed", "get_cells"},
		{notebook.ErrChanged, "changed", "new digest"},
		{notebook.ErrForbiddenPath, "forbidden_path", "RELAY_NOTEBOOK_DIRS"},
		{&notebook.NoCellError{Handle: "x", Nearest: []string{"y", "z"}}, "not_found", `"y" and "z"`},
		{bounded.TooLong(notebook.MaxBytes), "too_large", "Split"},
		{nbrun.ErrBusy, "busy", "same arguments"},
		{nbrun.ErrConflict, "conflict", "interrupt_execution"},
		{fs.ErrNotExist, "not_found", "notebook_path"},
		{&fs.PathError{Op: "write", Path: "/x", Err: syscall.ENOSPC}, "local_disk_full", "Free disk space"},
		{errors.New("other"), "internal", "Call again"},
	} {
		p := c.notebookProblem(fmt.Errorf("reading: %w", test.err))
		if p.Code != test.code || p.Message == "" || !strings.Contains(p.Hint, test.hint) {
			t.Errorf("%v: %+v", test.err, p)
		}
	}
}

// wants checks the code and the next step of a call that must fail.
func (d desk) wants(code, hint, tool string, arguments object) {
	d.t.Helper()
	r := d.call(tool, arguments)
	if p := r.outcome(d.t).Error; p == nil || p.Code != code || !strings.Contains(p.Message+" "+p.Hint, hint) {
		d.t.Errorf("%s: %.600s, want %s with %q", tool, r.Structured, code, hint)
	}
	if r.bytes > 20_000 {
		d.t.Errorf("%s: a refusal of %d bytes", tool, r.bytes)
	}
}
