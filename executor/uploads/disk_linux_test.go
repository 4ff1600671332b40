package uploads

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/executor/files"
	"colabrelay/executor/files/filestest"
	"colabrelay/shared/contract"
	"colabrelay/shared/smalldisk"
	"colabrelay/shared/tier"
)

// The disk fills up during an upload that fitted when it started.
func TestAFullDiskIsReportedAndReceivedBytesAreKept(t *testing.T) {
	tier.Long(t)
	disk := smalldisk.Run(t, 1)
	if disk == "" {
		return
	}
	in := &inbox{t: t, Tree: filestest.Tree{Workdir: disk, State: realDir(t)}}
	var err error
	in.roots, err = files.Open(in.Workdir, nil, in.State, nil)
	must(t, err)
	in.open()
	defer func() { in.stop() }()
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
	for _, r := range resumed.Missing {
		in.put(up.UploadID, r.Offset, data[r.Offset:r.Offset+r.Length])
	}
	_, err = in.commit(up.UploadID, data)
	must(t, err)
	in.holds("x", data)
}
