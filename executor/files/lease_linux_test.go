package files

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A lease is held by this test, as a file server does. A second open of the file would wait
// for its end, and SIGIO asks this process to give it up.
func TestAFileThatAnotherProgramHasReservedIsReported(t *testing.T) {
	tr := newTree(t)
	signal.Ignore(unix.SIGIO)
	defer signal.Reset(unix.SIGIO)
	f, err := os.OpenFile(filepath.Join(tr.Workdir, "a.txt"), os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	must(t, err)
	if _, err := tr.roots.Stat("a.txt"); !errors.Is(err, ErrLeased) {
		t.Errorf("Stat: %v, want %v", err, ErrLeased)
	}
}
