package transfer

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
	"colabrelay/shared/tier"
)

// A part that breaks is continued where it broke, by the same call and by the next one. The
// bytes are counted on the wire.
func TestABrokenPartIsContinuedWhereItBroke(t *testing.T) {
	const size, broken = partBytes, 3 << 20
	for name, again := range map[string]bool{"the same call": true, "the next call": false} {
		t.Run(name, func(t *testing.T) {
			v := newVM(t)
			want := fill(t, v.path("a.bin"), size, 1)
			dir := t.TempDir()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var parts atomic.Int32
			v.counts.step(t, func(r *http.Request) {
				if r.URL.Path == contract.PathContent && parts.Add(1) == 2 && !again {
					cancel(errEnough)
				}
			})
			v.wire.CutAt(broken)
			r, err := Download(ctx, v.client, v.path("a.bin"), Local{Dir: dir}, Options{})
			if !again {
				// Up to a record, and the answer about the file, did not count.
				if !errors.Is(err, errEnough) || r.DoneBytes < broken-(100<<10) || r.DoneBytes > broken {
					t.Fatalf("first call: %+v, %v", r, err)
				}
				first := r.DoneBytes
				r, err = Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: dir}, Options{})
				if r.ResumedFrom != first || r.MovedBytes != size-first {
					t.Errorf("second call: %+v, %v, after %d bytes", r, err, first)
				}
			}
			must(t, err)
			if _, down, cuts := v.wire.Passed(); cuts != 1 || down > size+(100<<10) {
				t.Errorf("%d cuts, and %d bytes passed for %d of the file", cuts, down, size)
			}
			if sha(t, r.Path) != want {
				t.Error("the file is wrong")
			}
		})
	}
}

// A hostile executor answers with more or fewer bytes than the part has.
func TestAPartOfAnotherLengthIsRefused(t *testing.T) {
	tier.Long(t)
	content := make([]byte, contract.MaxBatchFile+1)
	for name, sent := range map[string][]byte{
		"longer": append(content[:len(content):len(content)], 1), "much longer": make([]byte, len(content)+contract.MaxFilePart),
		"shorter, and at last longer": content[:1000], "empty": {},
	} {
		t.Run(name, func(t *testing.T) {
			vm := fakevm.Start(t)
			vm.Put("a.bin", content)
			vm.Lies(func(r *http.Request, _ []byte) (fakevm.Reply, bool) {
				return fakevm.Reply{Body: sent}, r.URL.Path == contract.PathContent
			})
			dir := t.TempDir()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			r, err := Download(ctx, clientOf(t, vm), "a.bin", Local{Dir: dir}, Options{Report: func(p Progress) {
				if p.Done > int64(len(content)) {
					cancel(errors.New("more bytes than the file has"))
				}
			}})
			if _, statErr := os.Stat(filepath.Join(dir, "a.bin")); err == nil || !errors.Is(statErr, fs.ErrNotExist) || ctx.Err() != nil {
				t.Errorf("%+v, %v; a file of that name: %v", r, err, statErr)
			}
			if info, err := os.Stat(filepath.Join(dir, "a.bin.part")); err != nil || info.Size() > int64(len(content)) {
				t.Errorf("the part file: %+v, %v", info, err)
			}
		})
	}
}
