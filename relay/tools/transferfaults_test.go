package tools

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
	"colabrelay/shared/tier"
)

func TestLocalNamesNeverLeaveTheSaveDir(t *testing.T) {
	h, vm, dir := serveVM(t, 10*time.Second)
	vm.Put("x", []byte("content"))
	outside := t.TempDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"link": outside, "up": ".."} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{
		"~/x", "..", "../x", "a/../../x", "a/../x", "/etc/x", filepath.Join(outside, "x"), dir + "/../x", dir + "x/y",
		`C:\x`, "c:x", "a:b", "a\x00b", strings.Repeat("n", 300), "link/x", "link/", "up/x", "..\x2f..\x2fx", "a\nb",
	} {
		r := h.call("download_from_colab", map[string]any{"remote_path": "/content/x", "local_filename": name})
		if o := r.outcome(t); o.Error == nil || o.Error.Code != string(contract.CodeForbiddenPath) || !strings.Contains(o.Error.Hint, "LOCAL_SAVE_DIR") {
			t.Errorf("%q: %s", name, r.Structured)
		}
	}
	for _, name := range []string{"~x", "...", "-rf", "Ünï cødé", "con", "$HOME", "./y", "z//x", `..\x`} {
		r := h.call("download_from_colab", map[string]any{"remote_path": "/content/x", "local_filename": name})
		got := decode[Download](t, r.Structured)
		if rel, err := filepath.Rel(dir, got.LocalPath); err != nil || !filepath.IsLocal(rel) {
			t.Errorf("%q: went to %q: %s", name, got.LocalPath, r.Structured)
		} else {
			mustHold(t, got.LocalPath, []byte("content"))
		}
	}
	for _, elsewhere := range []string{outside, filepath.Dir(dir)} {
		entries, err := os.ReadDir(elsewhere)
		if err != nil || len(entries) > 1 {
			t.Errorf("%s holds %v: %v", elsewhere, entries, err)
		}
	}
}

func TestFailuresOfATransferAreReportedWithANextStep(t *testing.T) {
	tier.Long(t)
	h, vm, dir := serveVM(t, 25*time.Second)
	vm.Put("big", randomBytes(large))
	write(t, filepath.Join(dir, "local.bin"), []byte("x"))
	refuse := func(method, path string, code contract.Code) fakevm.Hook {
		return func(_ context.Context, r *http.Request) error {
			if r.Method == method && strings.HasPrefix(r.URL.Path, path) {
				return &contract.Error{Code: code, Message: "refused"}
			}
			return nil
		}
	}
	var changes atomic.Int32
	for _, c := range []struct {
		name, tool string
		args       map[string]any
		hook       fakevm.Hook
		code, hint string
	}{
		{"nothing there", "download_from_colab", map[string]any{"remote_path": "/content/none"}, calm, "not_found", "list_colab_files"},
		{"outside the roots", "download_from_colab", map[string]any{"remote_path": "/etc/shadow"}, refuse("GET", contract.PathStat, contract.CodeForbiddenPath), "forbidden_path", "path relative to"},
		{"changes all the time", "download_from_colab", map[string]any{"remote_path": "big"}, func(_ context.Context, r *http.Request) error {
			if r.URL.Path == contract.PathContent {
				vm.Put("big", randomBytes(large+int(changes.Add(1))))
			}
			return nil
		}, "changed", "Wait until"},
		{"no local file", "upload_to_colab", map[string]any{"local_path": "none.bin"}, calm, "not_found", "on this computer"},
		{"the VM's disk is full", "upload_to_colab", map[string]any{"local_path": "local.bin"}, refuse("PUT", contract.PathUploads, contract.CodeDiskFull), "disk_full", "on the VM"},
		{"conflict", "upload_to_colab", map[string]any{"local_path": "local.bin"}, refuse("POST", contract.PathUploads, contract.CodeConflict), "conflict", "overwrite"},
		{"ending", "upload_to_colab", map[string]any{"local_path": "local.bin"}, refuse("POST", contract.PathUploads, contract.CodeShuttingDown), "shutting_down", "resumes where it stopped"},
	} {
		vm.On(c.hook)
		r := h.call(c.tool, c.args)
		if o := r.outcome(t); o.Error == nil || o.Error.Code != c.code || !strings.Contains(o.Error.Hint, c.hint) {
			t.Errorf("%s: %s", c.name, r.Structured)
		}
		vm.On(calm)
	}
}

func TestEveryFailureOfTheRelaysOwnHasACodeAndAHint(t *testing.T) {
	for _, cause := range []error{transfer.ErrGuarded, os.ErrNotExist} {
		p := problemOf(fmt.Errorf("moving %q: %w", "x", cause))
		if p.Code == codeInternal || p.Hint == "" || !strings.Contains(p.Message, `moving "x"`) {
			t.Errorf("%v: %+v", cause, p)
		}
	}
	for err, code := range map[error]string{
		transfer.ErrChanged: "changed", transfer.ErrLocalDisk: "local_disk_full", transfer.ErrBusy: "busy",
		transfer.ErrForbiddenName: "forbidden_path", transfer.ErrNotRegular: "not_supported",
		transfer.ErrTooMany: "too_large", transfer.ErrExists: "conflict", transfer.ErrLocalPath: "bad_request", transfer.ErrSomeFailed: "some_failed",
	} {
		if p := problemOf(err); p.Code != code {
			t.Errorf("%v: %+v", err, p)
		}
	}
	// A broken connection may hold a file error; its own kind is reported.
	lost := &client.Error{Kind: client.KindUnreachable, Message: "m", Hint: "h", Err: os.ErrNotExist}
	if p := problemOf(lost); p.Code != string(client.KindUnreachable) {
		t.Errorf("%+v", p)
	}
	if p := problemOf(errors.Join(transfer.ErrLocalDisk, lost)); p.Code != hint.CodeLocalDiskFull {
		t.Errorf("%+v", p)
	}
}

// Checkpoints and kernel states are written outside transfers: their full disk is no fault
// of the relay either.
func TestAFullLocalDiskIsNamedWhateverWasWritten(t *testing.T) {
	err := &fs.PathError{Op: "write", Path: "c.json", Err: syscall.ENOSPC}
	for _, err := range []error{fmt.Errorf("saving checkpoint: %w", err), errors.New("saving checkpoint: cannot write data: " + err.Error())} {
		if p := problemOf(err); p.Code != hint.CodeLocalDiskFull || !strings.Contains(p.Message, "c.json") {
			t.Errorf("%+v", p)
		}
	}
}
