package api

import (
	"math"
	"net/http"

	"colabrelay/shared/contract"
)

// maxETagLen bounds an etag in a query, in bytes.
const maxETagLen = 200

func (a *API) listFiles(r *http.Request) (any, error) {
	return a.Files.List(r.Context(), r.URL.Query().Get("path"), r.URL.Query().Get("after"))
}

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
	part := answerSpace(w, int(length))
	n, err := a.Files.Read(query.Get("path"), etag, offset, part)
	return part[:n], err
}

// writeBytes answers with bytes as they are.
func writeBytes(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Write(body) // into memory
}
