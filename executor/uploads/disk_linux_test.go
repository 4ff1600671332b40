package uploads

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/executor/files"
	"colabrelay/executor/files/filestest"
	"colabrelay/shared/contract"
	"colabrelay/shared/smalldisk"
	"colabrelay/shared/tier"
)

// inboxIn makes an inbox of two folders, of which one may be on a small disk.
func inboxIn(t *testing.T, work, state string) *inbox {
	in := &inbox{t: t, Tree: filestest.Tree{Workdir: work, State: state}}
	var err error
	in.roots, err = files.Open(work, nil, state, nil)
	must(t, err)
	in.open()
	return in
}

// finish sends what an upload misses, and commits it.
func (in *inbox) finish(up contract.Upload, data []byte) {
	in.t.Helper()
	for _, r := range up.Missing {
		in.put(up.UploadID, r.Offset, data[r.Offset:r.Offset+r.Length])
	}
	_, err := in.commit(up.UploadID, data)
	must(in.t, err)
	in.holds("x", data)
}

// The disk fills up during an upload that fitted when it started.
func TestAFullDiskIsReportedAndReceivedBytesAreKept(t *testing.T) {
	tier.Long(t)
	disk := smalldisk.Run(t, 1)
	if disk == "" {
		return
	}
	in := inboxIn(t, disk, realDir(t))
	defer in.stop()
	if out, err := in.Start(contract.UploadStart{Path: "big", SizeBytes: 2 << 20, Version: sha(nil)}); !errors.Is(err, files.ErrDiskFull) {
		t.Fatalf("an upload that does not fit: %+v, %v, want %v", out, err, files.ErrDiskFull)
	}
	if left := everything(t, in.Workdir); left != in.Workdir {
		t.Fatalf("it left %s", left)
	}
	data := body(700 << 10)
	up := in.start("x", data, false)
	in.put(up.UploadID, 0, data[:300<<10])
	filler := filepath.Join(disk, "filler")
	smalldisk.Fill(t, filler)
	if out, err := in.tryPut(up.UploadID, 300<<10, data[300<<10:]); !errors.Is(err, files.ErrDiskFull) {
		t.Fatalf("put on a full disk: %+v, %v, want %v", out, err, files.ErrDiskFull)
	}
	must(t, os.Remove(filler))
	in.reopen()
	resumed := in.start("x", data, false)
	if resumed.ReceivedBytes < 300<<10 || resumed.ReceivedBytes == int64(len(data)) {
		t.Fatalf("%d bytes are there, want those from before and what fitted, if any", resumed.ReceivedBytes)
	}
	in.finish(resumed, data)
}

// The state dir with the journal may be on another disk, which is full.
func TestAFullStateDirIsReportedAndOnlyRecordedBytesCount(t *testing.T) {
	tier.Long(t)
	disk := smalldisk.Run(t, 1)
	if disk == "" {
		return
	}
	in := inboxIn(t, realDir(t), disk)
	defer in.stop()
	data := body(2000)
	up := in.start("x", data, false)
	in.put(up.UploadID, 0, data[:500])
	one, err := in.get(up.UploadID)
	must(t, err)
	must(t, one.journal.file.Truncate(int64(os.Getpagesize()-4))) // only a part of the next line fits
	filler := filepath.Join(disk, "filler")
	smalldisk.Fill(t, filler)
	if out, err := in.tryPut(up.UploadID, 500, data[500:]); !errors.Is(err, files.ErrDiskFull) || !strings.Contains(err.Error(), disk) {
		t.Fatalf("put with a full state dir: %+v, %v, want %v", out, err, files.ErrDiskFull)
	}
	must(t, os.Remove(filler))
	in.reopen()
	resumed := in.start("x", data, false)
	if resumed.ReceivedBytes != 500 {
		t.Fatalf("%d bytes are counted, want the 500 recorded", resumed.ReceivedBytes)
	}
	in.finish(resumed, data)
}
