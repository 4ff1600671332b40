package transfer

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

// A hostile executor answers with more or fewer bytes than the part has.
func TestAPartOfAnotherLengthIsRefused(t *testing.T) {
	content := make([]byte, contract.MaxBatchFile+1)
	for name, sent := range map[string][]byte{
		"longer": append(content[:len(content):len(content)], 1), "shorter, and at last longer": content[:1000],
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
