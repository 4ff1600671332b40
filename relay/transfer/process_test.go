package transfer

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

func TestADownloadIsResumedAfterItsProcessWasKilled(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	const size = 64 << 20
	want := fill(t, v.path("a.bin"), size, 1)
	dir := t.TempDir()
	cmd, lines := startHelper(t, helperTask{URL: v.exec.Ready.LocalURL, Remote: v.path("a.bin"), Dir: dir}, nil)
	killMidway(t, cmd, lines, size/2)
	r, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: dir}, Options{})
	must(t, err)
	// A kill loses what the journal did not have.
	if sha(t, r.Path) != want || r.ResumedFrom < size/2-saveBytes-contract.MaxFilePart || r.MovedBytes != size-r.ResumedFrom {
		t.Errorf("%+v", r)
	}
	wantNames(t, dir, "a.bin")
}

func TestTheNameOfAnotherProcesssDownloadIsReserved(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	const size = 64 << 20
	want := fill(t, v.path("a.bin"), size, 1)
	dir := t.TempDir()
	cmd, lines := startHelper(t, helperTask{URL: v.exec.Ready.LocalURL, Remote: v.path("a.bin"), Dir: dir}, nil)
	lines.Scan()
	lines.Scan()
	// A stopped process is certain to hold the name still.
	must(t, cmd.Process.Signal(syscall.SIGSTOP))
	if _, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: dir}, Options{}); !errors.Is(err, ErrBusy) {
		t.Errorf("while another program has the name: %v", err)
	}
	must(t, cmd.Process.Signal(syscall.SIGCONT))
	if got := outcome(t, cmd, lines); !strings.Contains(got, "error: <nil>") {
		t.Errorf("the other program: %s", got)
	}
	if sha(t, dir+"/a.bin") != want {
		t.Error("the file is wrong")
	}
}

// Beyond the limit a write fails as on a full disk, even if root runs the test.
func TestAFullDiskKeepsTheReceivedBytes(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	const size = 64 << 20
	want := fill(t, v.path("a.bin"), size, 1)
	dir := t.TempDir()
	const limit = 3 * size / 4 // the first inFlight parts fit
	cmd, lines := startHelper(t, helperTask{URL: v.exec.Ready.LocalURL, Remote: v.path("a.bin"), Dir: dir, Limit: limit}, nil)
	if got := outcome(t, cmd, lines); !strings.Contains(got, "full: true") || !strings.Contains(got, `left: ["a.bin.part" "a.bin.part.json"]`) {
		t.Errorf("the process printed: %s", got)
	}
	r, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: dir}, Options{})
	must(t, err)
	if r.ResumedFrom == 0 || r.MovedBytes != size-r.ResumedFrom || sha(t, r.Path) != want {
		t.Errorf("with room again: %+v", r)
	}
}

// A private file system is too small from the start, or filled during the download.
func TestASmallDiskIsReportedAsFull(t *testing.T) {
	tier.Long(t)
	v := newVM(t)
	const size = 64 << 20
	fill(t, v.path("a.bin"), size, 1)
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	for name, c := range map[string]struct {
		task helperTask
		want string
	}{
		"from the start": {helperTask{Mount: "8m"}, fmt.Sprintf("needs %d more bytes", size)},
		"meanwhile":      {helperTask{Mount: "65m", Fill: true}, "bytes are still missing"},
	} {
		t.Run(name, func(t *testing.T) {
			task := c.task
			task.URL, task.Remote, task.Dir = v.exec.Ready.LocalURL, v.path("a.bin"), t.TempDir()
			cmd, lines := startHelper(t, task, attr)
			got := outcome(t, cmd, lines)
			if !strings.Contains(got, "full: true") || !strings.Contains(got, c.want) || !strings.Contains(got, "a.bin.part") {
				t.Errorf("the process printed: %s", got)
			}
		})
	}
}
