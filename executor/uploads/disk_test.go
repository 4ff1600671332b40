package uploads

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"colabrelay/executor/files"
	"colabrelay/executor/files/filestest"
	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// smallDisk is set in a test that runs again in its own process, in which no
// file can grow over 1 MiB, because of the size of the disk or a limit of the process.
const smallDisk = "COLAB_RELAY_TEST_SMALL_DISK"

// again runs the calling test in its own process.
func again(t *testing.T, how string, attr *syscall.SysProcAttr) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), smallDisk+"="+how)
	cmd.SysProcAttr = attr
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "--- PASS: "+t.Name()) {
		t.Errorf("%s: %v\n%s", how, err, out.String())
	}
	return nil
}

// ownMounts makes a process with its own mounts. Root may do that on every system, other
// users if the system has user namespaces.
func ownMounts() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return attr
}

// onSmallDisk returns false in the test's own process, after it has run the test in others.
// A full file system needs a mount. If mounting is not allowed, only the limit is tested.
func onSmallDisk(t *testing.T, dir string) bool {
	t.Helper()
	switch os.Getenv(smallDisk) {
	case "mount":
		must(t, syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
		must(t, syscall.Mount("small", dir, "tmpfs", 0, "size=1m"))
		t.Cleanup(func() { must(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
		return true
	case "limit":
		must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 20, Max: 1 << 20}))
		return true
	}
	if err := again(t, "mount", ownMounts()); err != nil {
		t.Logf("no mounts here: %v", err)
	}
	must(t, again(t, "limit", nil))
	return false
}

func TestAFullDiskIsReportedAndReceivedBytesAreKept(t *testing.T) {
	tier.Long(t)
	dir := realDir(t)
	if !onSmallDisk(t, dir) {
		return
	}
	must(t, os.Mkdir(filepath.Join(dir, "work"), 0o700))
	in := &inbox{t: t, Tree: filestest.Tree{Workdir: filepath.Join(dir, "work"), State: realDir(t)}}
	var err error
	in.roots, err = files.Open(in.Workdir, nil, in.State, nil)
	must(t, err)
	in.open()

	big := contract.UploadStart{Path: "big", SizeBytes: 2 << 20, Version: sha(nil)}
	if out, err := in.Start(big); !errors.Is(err, files.ErrDiskFull) {
		t.Fatalf("an upload that does not fit: %+v, %v, want %v", out, err, files.ErrDiskFull)
	}
	if left := everything(t, in.Workdir); left != in.Workdir {
		t.Fatalf("it left %s", left)
	}
	if os.Getenv(smallDisk) == "mount" {
		in.fillsUp()
	}
	in.stop()
}

// fillsUp fills the disk during an upload that fitted when it started.
func (in *inbox) fillsUp() {
	t, data := in.t, body(700<<10)
	up := in.start("x", data, false)
	in.put(up.UploadID, 0, data[:300<<10])
	hog := filepath.Join(in.Workdir, "hog")
	must(t, os.WriteFile(hog, make([]byte, 600<<10), 0o600))
	out, err := in.tryPut(up.UploadID, 300<<10, data[300<<10:])
	if !errors.Is(err, files.ErrDiskFull) {
		t.Fatalf("put on a full disk: %+v, %v, want %v", out, err, files.ErrDiskFull)
	}
	if _, err := in.Start(contract.UploadStart{Path: "x", SizeBytes: int64(len(data)), Version: sha(data)}); !errors.Is(err, files.ErrDiskFull) || !strings.Contains(err.Error(), "more bytes are needed") {
		t.Fatalf("resumed on a full disk: %v, want %v and how much is missing", err, files.ErrDiskFull)
	}
	must(t, os.Remove(hog))
	in.reopen()
	resumed := in.start("x", data, false)
	if resumed.ReceivedBytes < 300<<10 || resumed.ReceivedBytes == int64(len(data)) {
		t.Fatalf("%d bytes are there, want those from before and what fitted, if any", resumed.ReceivedBytes)
	}
	for _, r := range resumed.Missing {
		in.put(up.UploadID, r.Offset, data[r.Offset:r.Offset+r.Length])
	}
	_, err = in.commit(up.UploadID, data)
	must(t, err)
	in.holds("x", data)
}

// The state dir with the journal may be on another disk, which is full.
func TestAFullStateDirIsReportedAndOnlyRecordedBytesCount(t *testing.T) {
	tier.Long(t)
	dir := realDir(t)
	if !onSmallDisk(t, dir) {
		return
	}
	in := &inbox{t: t, Tree: filestest.Tree{Workdir: realDir(t), State: dir}}
	var err error
	in.roots, err = files.Open(in.Workdir, nil, in.State, nil)
	must(t, err)
	in.open()
	data := body(2000)
	up := in.start("x", data, false)
	in.put(up.UploadID, 0, data[:500])
	one, err := in.get(up.UploadID)
	must(t, err)
	release := in.choke(one.journal)
	out, err := in.tryPut(up.UploadID, 500, data[500:])
	if !errors.Is(err, files.ErrDiskFull) {
		t.Fatalf("put with a full state dir: %+v, %v, want %v", out, err, files.ErrDiskFull)
	}
	release()
	in.reopen()
	if resumed := in.start("x", data, false); resumed.ReceivedBytes != 500 {
		t.Fatalf("%d bytes are counted, want the 500 recorded", resumed.ReceivedBytes)
	}
	in.put(up.UploadID, 500, data[500:])
	_, err = in.commit(up.UploadID, data)
	must(t, err)
	in.holds("x", data)
	in.stop()
}

// choke leaves space for only a part of the next line of the journal.
func (in *inbox) choke(j *journal) (release func()) {
	t := in.t
	if os.Getenv(smallDisk) == "limit" {
		must(t, j.file.Truncate(1<<20-4))
		return func() { must(t, os.Truncate(j.path(rangesFile), j.size)) }
	}
	page := int64(os.Getpagesize())
	must(t, j.file.Truncate(page-4))
	hog := filepath.Join(in.State, "hog")
	err := os.WriteFile(hog, make([]byte, 2<<20), 0o600)
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk did not fill up: %v", err)
	}
	return func() { must(t, os.Remove(hog)) }
}

// Missing bytes are holes, so the test can start a large upload on a small disk and send its
// end.
func TestUploadsBeyondFourGiB(t *testing.T) {
	in := newInbox(t)
	const size = 5<<30 + 7
	up, err := in.Start(contract.UploadStart{Path: "big", SizeBytes: size, Version: sha(nil)})
	must(t, err)
	in.put(up.UploadID, 1<<32-3, []byte("across"))
	out := in.put(up.UploadID, size-3, []byte("end"))
	want := []contract.Range{{Offset: 0, Length: 1<<32 - 3}, {Offset: 1<<32 + 3, Length: size - 3 - (1<<32 + 3)}}
	if diff := cmp.Diff(want, out.Missing); diff != "" || out.ReceivedBytes != 9 {
		t.Fatalf("%d bytes are received; missing ranges: %s", out.ReceivedBytes, diff)
	}
	f, err := os.Open(in.parts(in.Workdir)[0])
	must(t, err)
	defer f.Close()
	buf := make([]byte, 8)
	_, err = f.ReadAt(buf, 1<<32-4)
	must(t, err)
	if string(buf) != "\x00across\x00" {
		t.Errorf("there is %q", buf)
	}
	var st unix.Stat_t
	must(t, unix.Fstat(int(f.Fd()), &st))
	if st.Blocks*512 > 1<<20 {
		t.Errorf("the part takes %d bytes of the disk", st.Blocks*512)
	}
	runtime.KeepAlive(f)
}
