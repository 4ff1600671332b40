package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sync/errgroup"

	"colabrelay/executor/files"
	"colabrelay/executor/uploads"
	"colabrelay/shared/contract"
)

// fileStand is an API over real files, without a kernel.
type fileStand struct {
	*stand
	work string
}

func newFileStand(t testing.TB) fileStand {
	t.Helper()
	b, base := fileBackend(t, t.TempDir())
	s := fileStand{newStand(t), filepath.Join(base, "work")}
	ctx, cancel := context.WithCancel(context.Background())
	var g errgroup.Group
	g.Go(func() error { return b.Digests.Run(ctx) })
	g.Go(func() error { return b.Uploads.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	s.api.Attach(b)
	return s
}

func (s fileStand) write(name string, content []byte) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.work, name), content, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s fileStand) etag(name string) string {
	s.t.Helper()
	return into[contract.FileStat](s.stand, s.call("GET", contract.PathStat+"?path="+url.QueryEscape(name), nil)).ETag
}

func contentPath(name, etag string, offset, length int64) string {
	query := url.Values{"path": {name}, "etag": {etag}}
	query.Set("offset", strconv.FormatInt(offset, 10))
	query.Set("length", strconv.FormatInt(length, 10))
	return contract.PathContent + "?" + query.Encode()
}

func (s fileStand) start(name string, content []byte) contract.Upload {
	s.t.Helper()
	return into[contract.Upload](s.stand, s.call("POST", contract.PathUploads, contract.UploadStart{
		Path: name, SizeBytes: int64(len(content)), Version: sum(content)[:16],
	}))
}

func (s fileStand) put(id string, offset int, body []byte) reply {
	s.t.Helper()
	return s.signed(s.request("PUT", putPath(id, offset, len(body)), body), body)
}

func putPath(id string, offset, length int) string {
	return contract.PathUploads + "/" + id + "?offset=" + strconv.Itoa(offset) + "&length=" + strconv.Itoa(length)
}

func (s fileStand) upload(id string) contract.Upload {
	s.t.Helper()
	return into[contract.Upload](s.stand, s.call("GET", contract.PathUploads+"/"+id, nil))
}

// commit requests the commit and waits for its end.
func (s fileStand) commit(id string, content []byte) contract.Upload {
	s.t.Helper()
	for {
		u := into[contract.Upload](s.stand, s.call("POST", contract.PathUploads+"/"+id+"/commit?wait_seconds=10", contract.UploadCommit{SHA256: sum(content)}))
		if u.Status != contract.UploadHashing {
			return u
		}
	}
}

// wantFile checks that the upload is committed, and the content of its file.
func (s fileStand) wantFile(u contract.Upload, content []byte) {
	s.t.Helper()
	got, err := os.ReadFile(u.Path)
	if err != nil || u.Status != contract.UploadCommitted || !bytes.Equal(got, content) {
		s.t.Fatalf("%d bytes of %d are in place, upload %+v: %v", len(got), len(content), u, err)
	}
}

func sum(content []byte) string {
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}

func noise(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// fileBackend is a backend with files in the folders work and state of dir, whose real path it
// returns.
func fileBackend(t testing.TB, dir string) (b Backend, base string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(dir)
	must(t, err)
	work, state, temp := filepath.Join(base, "work"), filepath.Join(base, "state"), filepath.Join(base, "tmp")
	for _, dir := range []string{work, state, temp} {
		must(t, os.Mkdir(dir, 0o700))
	}
	t.Setenv("TMPDIR", temp) // so that base itself is not a root
	b.Files, err = files.Open(work, nil, state, nil)
	must(t, err)
	b.Digests = files.NewDigests(b.Files)
	b.Uploads, err = uploads.Open(b.Files, filepath.Join(state, "uploads"), slog.New(slog.DiscardHandler))
	must(t, err)
	return b, base
}
