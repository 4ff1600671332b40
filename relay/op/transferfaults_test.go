package op

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"colabrelay/relay/hint"
)

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
