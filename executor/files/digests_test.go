package files

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

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
	one, err := d.of(t.Context(), "big", o, source{real: o.real, etag: o.ETag, size: o.Size})
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
