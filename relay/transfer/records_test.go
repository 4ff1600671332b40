package transfer

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// A folder in the destination's path is exchanged for a link while the download runs.
func TestAFolderExchangedForALinkDuringADownloadIsNotLeft(t *testing.T) {
	base := t.TempDir()
	dir, outside := filepath.Join(base, "dir"), filepath.Join(base, "outside")
	must(t, os.MkdirAll(outside, 0o755))
	vm := fakevm.Start(t)
	vm.Put("big", make([]byte, 3*partBytes))
	c := clientOf(t, vm)
	var exchanged atomic.Bool
	vm.On(func(_ context.Context, r *http.Request) error {
		if r.URL.Path == contract.PathContent && exchanged.CompareAndSwap(false, true) {
			if err := errors.Join(os.Rename(filepath.Join(dir, "sub"), filepath.Join(dir, "moved")), os.Symlink(outside, filepath.Join(dir, "sub"))); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	r, err := Download(t.Context(), c, "big", Local{Dir: dir, Name: "sub/big"}, Options{RecordDir: t.TempDir()})
	if err == nil || !exchanged.Load() {
		t.Errorf("%+v, %v", r, err)
	}
	wantNames(t, outside)
}
