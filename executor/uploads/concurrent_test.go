package uploads

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
	"colabrelay/shared/within"
)

// Two relays send and commit the same file concurrently, in overlapping parts of which some
// are cut.
func TestTwoSendersOfTheSameFile(t *testing.T) {
	in := newInbox(t)
	data := body(1 << 20)
	var group sync.WaitGroup
	for sender := range 2 {
		group.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(sender), 7))
			s := contract.UploadStart{Path: "x", SizeBytes: int64(len(data)), Version: sha(data)}
			for limit := within.Context(t); limit.Err() == nil; {
				up, err := in.Start(s)
				if err != nil {
					t.Errorf("start: %v", err)
					return
				}
				for _, r := range up.Missing {
					for at := r.Offset; at < r.Offset+r.Length; {
						n := min(1+rnd.Int64N(100_000), int64(len(data))-at)
						part := &cutBody{data: data[at : at+n]}
						if rnd.IntN(5) == 0 {
							part.data, part.err = part.data[:n/2], errCut
						}
						if _, err := in.Put(up.UploadID, at, n, part); !errors.Is(err, part.err) {
							t.Errorf("put: %v", err)
							return
						}
						at += 1 + n/2
					}
				}
				up, err = in.commit(up.UploadID, data)
				if err != nil {
					t.Errorf("commit: %v", err)
				}
				if err != nil || up.Status == contract.UploadCommitted {
					return
				}
			}
			t.Errorf("sender %d did not end", sender)
		})
	}
	group.Wait()
	in.holds("x", data)
	if exists(filepath.Join(in.Workdir, "x (1)")) {
		t.Error("it is there twice")
	}
}

// A shutdown stops hashing; the next executor continues.
func TestACommitInterruptedByAShutdownCanBeRepeated(t *testing.T) {
	in := newInbox(t)
	in.stop()
	up := in.start("x", body(100), false)
	in.put(up.UploadID, 0, body(100))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := in.Commit(t.Context(), up.UploadID, sha(body(100)), 0)
	must(t, err)
	one, err := in.get(up.UploadID)
	must(t, err)
	one.finish(ctx)
	if out, err := in.Get(t.Context(), up.UploadID, 0); !errors.Is(err, context.Canceled) {
		t.Fatalf("cut: %+v, %v", out, err)
	}
	in.open()
	_, err = in.commit(up.UploadID, body(100))
	must(t, err)
	in.holds("x", body(100))
}

func TestTheLeastRecentlyUsedUploadIsDropped(t *testing.T) {
	in := newInbox(t)
	var ids []string
	for n := range contract.MaxUploads {
		ids = append(ids, in.start(fmt.Sprintf("many/%d", n), body(100), false).UploadID)
	}
	in.put(ids[0], 0, body(10)) // now it was used
	in.start("many/more", body(100), false)
	if _, err := in.Get(t.Context(), ids[1], 0); !errors.Is(err, ErrNoUpload) {
		t.Errorf("the least recently used one: %v, want %v", err, ErrNoUpload)
	}
	if _, err := in.Get(t.Context(), ids[0], 0); err != nil {
		t.Errorf("one used since: %v", err)
	}
	if n := len(in.parts(filepath.Join(in.Workdir, "many"))); n != contract.MaxUploads {
		t.Errorf("%d parts are there, want %d", n, contract.MaxUploads)
	}
	in.folders(contract.MaxUploads)
}

// folders checks the number of uploads in the state dir.
func (in *inbox) folders(want int) {
	in.t.Helper()
	entries, err := os.ReadDir(filepath.Join(in.State, "uploads"))
	must(in.t, err)
	if len(entries) != want {
		in.t.Errorf("%d uploads are in the state dir, want %d", len(entries), want)
	}
}

func TestUploadsBeingCommittedAreNotDropped(t *testing.T) {
	in := newInbox(t)
	in.stop()
	for n := range contract.MaxUploads {
		up := in.start(fmt.Sprint(n), nil, false)
		_, err := in.Commit(t.Context(), up.UploadID, sha(nil), 0)
		must(t, err)
	}
	if _, err := in.Start(contract.UploadStart{Path: "more", Version: "v"}); !errors.Is(err, files.ErrBusy) {
		t.Fatalf("one more: %v, want %v", err, files.ErrBusy)
	}
	runs(t, in.Run)
	within.Until(t, "one of them is committed", func() bool {
		_, err := in.Start(contract.UploadStart{Path: "more", Version: "v"})
		return err == nil
	})
}

func TestUnusedUploadsAreDropped(t *testing.T) {
	in := newInbox(t)
	done := in.send("done", body(10), false)
	old := in.start("old", body(100), false)
	in.put(old.UploadID, 0, body(50))
	long := time.Now().Add(-keepUploads - time.Hour)
	in.stop()
	for _, id := range []string{old.UploadID, done.UploadID} {
		dir := filepath.Join(in.State, "uploads", id)
		os.Chtimes(filepath.Join(dir, rangesFile), long, long) // fails for a committed one, which has none
		must(t, os.Chtimes(dir, long, long))
	}
	young := in.start("young", body(100), false)
	in.open()
	if _, err := in.Get(t.Context(), old.UploadID, 0); !errors.Is(err, ErrNoUpload) {
		t.Errorf("an old upload: %v, want %v", err, ErrNoUpload)
	}
	if _, err := in.Get(t.Context(), young.UploadID, 0); err != nil {
		t.Errorf("a young upload: %v", err)
	}
	in.folders(1)
	if n := len(in.parts(in.Workdir)); n != 1 {
		t.Errorf("%d parts are there, want 1", n)
	}
	must(t, os.Remove(in.parts(in.Workdir)[0]))
	in.holds("done", body(10))
}
