package api

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/line/linetest"
)

// hookedWriter calls a test's function before each write, with the bytes written so far.
type hookedWriter struct {
	http.ResponseWriter
	before  func(written int)
	written int
}

func (h *hookedWriter) Write(b []byte) (int, error) {
	h.before(h.written)
	h.written += len(b)
	return h.ResponseWriter.Write(b)
}

func (h *hookedWriter) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// The file changes after some of its part was sent: the caller must not take the rest, which
// is of another version, for the end of the part. After the last piece was read, a change
// comes too late for this part.
func TestAPartOfAFileThatChangesMeanwhileIsCut(t *testing.T) {
	const pieces = 3
	old, changed := noise(pieces*pieceBytes-1000), noise(pieces*pieceBytes-1000)
	for piece := range pieces {
		s := newFileStand(t)
		s.write("a", old)
		etag := s.etag("a")
		done := false
		s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.api.ServeHTTP(&hookedWriter{ResponseWriter: w, before: func(written int) {
				if !done && written >= piece*pieceBytes {
					done = true
					// The time is certain to differ, whatever the file system's clock.
					name := filepath.Join(s.work, "a")
					if os.WriteFile(name, changed, 0o600) != nil || os.Chtimes(name, time.Time{}, time.Unix(1, 0)) != nil {
						t.Error("the file could not be changed")
					}
				}
			}}, r)
		}))
		req := s.request("GET", contentPath("a", etag, 0, contract.MaxFilePart), nil)
		x := s.sign(req, nil, time.Now())
		res, err := s.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := linetest.Open(x, res, res.Body, true)
		res.Body.Close()
		if !done {
			t.Fatal("the file did not change")
		}
		whole := err == nil && bytes.Equal(got, old)
		cut := err != nil && len(got) <= (pieces-1)*pieceBytes
		if last := piece == pieces-1; last && !whole || !last && !cut {
			t.Errorf("changed when %d of %d pieces had been sent: %d bytes, %v", piece, pieces, len(got), err)
		}
	}
}
