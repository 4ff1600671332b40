package tools

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"colabrelay/relay/client"
	"colabrelay/relay/hint"
	"colabrelay/relay/transfer"
)

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
