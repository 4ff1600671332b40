package api

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"colabrelay/executor/uploads"
	"colabrelay/shared/contract"
)

// maxETagLen bounds an etag in a query, in bytes.
const maxETagLen = 200

// stat says what a path is; with digest=1 also the file's SHA-256, or how far its
// hashing is once wait_seconds are over.
func (a *API) stat(r *http.Request) (any, error) {
	path := r.URL.Query().Get("path")
	digest, err := number(r, "digest", 0, 0, 1)
	if err != nil {
		return nil, err
	}
	wait, err := waitSeconds(r)
	if err != nil {
		return nil, err
	}
	if digest == 0 {
		return a.Files.Stat(path)
	}
	done, err := a.waitFor(r, wait)
	if err != nil {
		return nil, err
	}
	defer done()
	return a.Digests.Stat(r.Context(), path, wait)
}

// content serves a part of a file: length bytes at most, less at its end.
func (a *API) content(w http.ResponseWriter, r *http.Request) {
	part, err := a.filePart(w, r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeBytes(w, part)
}

func (a *API) filePart(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	query := r.URL.Query()
	etag := query.Get("etag")
	if etag == "" || len(etag) > maxETagLen {
		return nil, badRequest("etag: want the file's, from its stat")
	}
	offset, err := number(r, "offset", 0, 0, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	length, err := number(r, "length", contract.MaxFilePart, 1, contract.MaxFilePart)
	if err != nil {
		return nil, err
	}
	part := space(w, int(length))
	n, err := a.Files.Read(query.Get("path"), etag, offset, part)
	return part[:n], err
}

// startUpload begins an upload, or finds the one that the same call began.
func (a *API) startUpload(r *http.Request) (any, error) {
	var s contract.UploadStart
	if err := decode(r, &s); err != nil {
		return nil, err
	}
	return a.Uploads.Start(s)
}

// putPart takes a part of a file in. What came of one that was cut is kept too, for
// the whole file's digest to judge; its answer reaches nobody.
func (a *API) putPart(r *http.Request) (any, error) {
	id, err := uploadID(r)
	if err != nil {
		return nil, err
	}
	offset, err := number(r, "offset", 0, 0, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	body := sentBody(r)
	u, err := a.Uploads.Put(id, offset, body.bytes, !body.cut)
	if body.cut && err == nil {
		err = errCutBody
	}
	return u, err
}

func (a *API) upload(r *http.Request) (any, error) { return a.askUpload(r, a.Uploads.Get) }

// commitUpload puts a whole file in its place, or says how far its check is once
// wait_seconds are over.
func (a *API) commitUpload(r *http.Request) (any, error) { return a.askUpload(r, a.Uploads.Commit) }

// askUpload asks about one upload by long poll.
func (a *API) askUpload(r *http.Request, ask func(ctx context.Context, id string, wait time.Duration) (contract.Upload, error)) (any, error) {
	id, err := uploadID(r)
	if err != nil {
		return nil, err
	}
	wait, err := waitSeconds(r)
	if err != nil {
		return nil, err
	}
	done, err := a.waitFor(r, wait)
	if err != nil {
		return nil, err
	}
	defer done()
	return ask(r.Context(), id, wait)
}

func uploadID(r *http.Request) (string, error) {
	id := chi.URLParam(r, "id")
	if !idPattern.MatchString(id) {
		return "", uploads.ErrNoUpload
	}
	return id, nil
}

// writeBytes answers with bytes as they are.
func writeBytes(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Write(body) // into memory
}
