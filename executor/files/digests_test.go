package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

func TestTheDigestOfASmallFileIsInTheFirstAnswer(t *testing.T) {
	tr := newTree(t)
	d := NewDigests(tr.roots) // not running
	for name, data := range map[string][]byte{"empty": nil, "small": body(hashedAtOnce)} {
		must(t, os.WriteFile(filepath.Join(tr.Workdir, name), data, 0o600))
		out, err := d.Stat(t.Context(), name, 0)
		must(t, err)
		want, err := tr.roots.Stat(name)
		must(t, err)
		want.SHA256 = sha(data)
		if diff := cmp.Diff(want, out); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if out, err := d.Stat(t.Context(), "data", 0); err != nil || out.SHA256 != "" || !out.IsDir {
		t.Errorf("a folder: %+v, %v", out, err)
	}
}

func TestTheDigestOfALargeFileIsComputedInTheBackground(t *testing.T) {
	tr := newTree(t)
	d := NewDigests(tr.roots)
	data := body(hashedAtOnce + 1)
	must(t, os.WriteFile(filepath.Join(tr.Workdir, "big"), data, 0o600))
	out, err := d.Stat(t.Context(), "big", 0)
	must(t, err)
	want, err := tr.roots.Stat("big")
	must(t, err)
	want.Hashing = &contract.Hashing{TotalBytes: int64(len(data))}
	if diff := cmp.Diff(want, out); diff != "" {
		t.Fatalf("before it is hashed: %s", diff)
	}
	runs(t, d.Run)
	out, err = d.Stat(t.Context(), "big", timeout)
	must(t, err)
	want.SHA256, want.Hashing = sha(data), nil
	if diff := cmp.Diff(want, out); diff != "" {
		t.Fatalf("after it was hashed: %s", diff)
	}
}

// cached is the digest of a small file if it is cached: otherwise hashing fails because ctx has ended.
func cached(d *Digests, path string) (string, error) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	out, err := d.Stat(ctx, path, 0)
	return out.SHA256, err
}

func TestADigestIsCachedUntilTheFileChanges(t *testing.T) {
	tr := newTree(t)
	d := NewDigests(tr.roots)
	d.settledAfter = 0 // a file that changed just now counts as settled
	file := filepath.Join(tr.Workdir, "x")
	must(t, os.WriteFile(file, []byte("first"), 0o600))
	if out, err := d.Stat(t.Context(), "x", 0); err != nil || out.SHA256 != sha([]byte("first")) {
		t.Fatalf("%+v, %v", out, err)
	}
	if sum, err := cached(d, "x"); err != nil || sum != sha([]byte("first")) {
		t.Fatalf("it is not cached: %q, %v", sum, err)
	}
	awaitTick(t, file)
	must(t, os.WriteFile(file, []byte("other"), 0o600))
	if sum, err := cached(d, "x"); !errors.Is(err, context.Canceled) {
		t.Fatalf("the old digest is cached: %q, %v", sum, err)
	}
	if out, err := d.Stat(t.Context(), "x", 0); err != nil || out.SHA256 != sha([]byte("other")) {
		t.Fatalf("changed: %+v, %v", out, err)
	}
}

// A further change within the same clock tick could not be recognised.
func TestTheDigestOfAFileThatChangedJustNowIsNotCached(t *testing.T) {
	tr := newTree(t)
	d := NewDigests(tr.roots)
	if d.settledAfter != settledAfter || settledAfter < time.Second {
		t.Fatalf("files settle after %v", d.settledAfter)
	}
	d.settledAfter = time.Hour
	if out, err := d.Stat(t.Context(), "a.txt", 0); err != nil || out.SHA256 != sha([]byte("hello")) {
		t.Fatalf("%+v, %v", out, err)
	}
	if sum, err := cached(d, "a.txt"); !errors.Is(err, context.Canceled) {
		t.Fatalf("it is cached: %q, %v", sum, err)
	}
}

func TestAFileThatChangesWhileItIsHashedHasNoDigest(t *testing.T) {
	tr := newTree(t)
	d := NewDigests(tr.roots)
	file := filepath.Join(tr.Workdir, "big")
	must(t, os.WriteFile(file, body(hashedAtOnce+1), 0o600))
	o, err := tr.roots.open("big")
	must(t, err)
	defer o.Close()
	one, err := d.of(t.Context(), "big", o)
	must(t, err)
	awaitTick(t, file)
	must(t, os.WriteFile(file, body(hashedAtOnce+2), 0o600))
	runs(t, d.Run)
	if !Await(t.Context(), one.ended, timeout) || !errors.Is(one.err, ErrChanged) {
		t.Fatalf("its digest is %q, %v, want %v", one.sum, one.err, ErrChanged)
	}
	if out, err := d.Stat(t.Context(), "big", timeout); err != nil || out.SHA256 != sha(body(hashedAtOnce+2)) {
		t.Fatalf("asked again: %+v, %v", out, err)
	}
}

func TestManyRequestsForOneDigestHashTheFileOnce(t *testing.T) {
	tr := newTree(t)
	d := NewDigests(tr.roots)
	data := body(2 * hashedAtOnce)
	must(t, os.WriteFile(filepath.Join(tr.Workdir, "big"), data, 0o600))
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if out, err := d.Stat(t.Context(), "big", timeout); err != nil || out.SHA256 != sha(data) {
				t.Errorf("%+v, %v", out, err)
			}
		})
	}
	for end := time.Now().Add(timeout); len(d.pending) == 0 && time.Now().Before(end); {
		_, err := d.Stat(t.Context(), "a.txt", 0)
		must(t, err)
	}
	if len(d.pending) != 1 {
		t.Errorf("%d files wait to be hashed, want 1", len(d.pending))
	}
	runs(t, d.Run)
	group.Wait()
}

// hugeFiles makes sparse files that take hours to hash, and asks for the digest of each once.
func hugeFiles(t *testing.T, tr tree, d *Digests, count int) (started []*digest) {
	t.Helper()
	for n := range count {
		name := fmt.Sprintf("huge%d", n)
		file := filepath.Join(tr.Workdir, name)
		must(t, os.WriteFile(file, nil, 0o600))
		must(t, os.Truncate(file, 1<<40))
		o, err := tr.roots.open(name)
		must(t, err)
		one, err := d.of(t.Context(), name, o)
		o.Close()
		must(t, err)
		started = append(started, one)
	}
	return started
}

func TestHugeFilesDoNotKeepOthersFromBeingHashed(t *testing.T) {
	tier.Long(t)
	tr := newTree(t)
	d := NewDigests(tr.roots)
	if d.turn != hashingTurn || d.unwanted != unwantedAfter || unwantedAfter <= contract.MaxWait {
		t.Fatalf("a turn takes %v, and a file is dropped after %v", d.turn, d.unwanted)
	}
	d.turn = 10 * time.Millisecond
	huge := hugeFiles(t, tr, d, 2*maxHashing)
	runs(t, d.Run)
	data := body(4 * hashedAtOnce)
	must(t, os.WriteFile(filepath.Join(tr.Workdir, "big"), data, 0o600))
	if out, err := d.Stat(t.Context(), "big", timeout); err != nil || out.SHA256 != sha(data) {
		t.Fatalf("a file behind huge ones: %+v, %v", out, err)
	}
	for n, one := range huge {
		if Await(t.Context(), one.ended, 0) {
			t.Errorf("hashing huge file %d ended: %q, %v", n, one.sum, one.err)
		}
	}
}

func TestAWaitingFileThatNobodyAsksForIsDropped(t *testing.T) {
	tr := newTree(t)
	d := NewDigests(tr.roots)
	d.turn, d.unwanted = 10*time.Millisecond, 0
	huge := hugeFiles(t, tr, d, 2*maxHashing)
	runs(t, d.Run)
	left := len(huge)
	for end := time.Now().Add(timeout); left > maxHashing && time.Now().Before(end); {
		d.mu.Lock()
		left = len(d.computing)
		d.mu.Unlock()
		runtime.Gosched()
	}
	for _, one := range huge {
		if Await(t.Context(), one.ended, 0) && !errors.Is(one.err, ErrBusy) {
			t.Errorf("dropped with %v, want %v", one.err, ErrBusy)
		}
	}
	if left == 0 || left > maxHashing { // nobody waits for the others
		t.Errorf("%d files are hashed, want 1 to %d", left, maxHashing)
	}
}

func TestDigestsAreBounded(t *testing.T) {
	tr := newTree(t)
	d := NewDigests(tr.roots)
	for n := range maxPending + 1 {
		name := fmt.Sprintf("big%d", n)
		f, err := os.Create(filepath.Join(tr.Workdir, name))
		must(t, err)
		must(t, f.Truncate(hashedAtOnce+1))
		must(t, f.Close())
		if _, err := d.Stat(t.Context(), name, 0); n < maxPending && err != nil || n == maxPending && !errors.Is(err, ErrBusy) {
			t.Fatalf("file %d: %v", n, err)
		}
	}
	for n := range maxDigests + 10 {
		d.finish(&digest{of: source{"x", fmt.Sprint(n)}, started: time.Now()}, &opened{})
	}
	if n := d.finished.Len(); n != maxDigests {
		t.Errorf("%d digests are cached, want %d", n, maxDigests)
	}
	if !d.finished.Contains(source{"x", fmt.Sprint(maxDigests + 9)}) {
		t.Error("the newest was evicted")
	}
	if len(d.computing) != maxPending {
		t.Errorf("%d files wait to be hashed, want %d", len(d.computing), maxPending)
	}
}
