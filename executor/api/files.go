package api

import (
	"context"
	"math"
	"net/http"
	"time"

	"colabrelay/executor/uploads"
	"colabrelay/shared/contract"
)

// maxETagLen is how many bytes an etag in a query may have.
const maxETagLen = 200

func (a *API) listFiles(r *http.Request) (any, error) {
	return a.Files.List(r.Context(), r.URL.Query().Get("path"), r.URL.Query().Get("after"))
}

// stat describes the file or folder at a path. With digest=1 it includes the file's
// SHA-256, or the progress of hashing if that is not finished after wait_seconds. With an etag
// too, it is that of the first size bytes of the file that had the etag and may have grown since.
func (a *API) stat(r *http.Request) (any, error) {
	p := parametersOf(r)
	path, digest, wait := p.query.Get("path"), p.number("digest", 0, 0, 1), p.wait()
	etag, size := p.query.Get("etag"), p.number("size", 0, 0, math.MaxInt64)
	if len(etag) > maxETagLen {
		p.fail(badRequest("etag: must be the etag of a file"))
	}
	if p.err != nil {
		return nil, p.err
	}
	if digest == 0 {
		return a.Files.Stat(path)
	}
	done, err := a.waitFor(r, wait)
	if err != nil {
		return nil, err
	}
	defer done()
	if etag != "" {
		return a.Digests.Prefix(r.Context(), path, etag, size, wait)
	}
	return a.Digests.Stat(r.Context(), path, wait)
}

// content serves a part of a file: length bytes, or fewer at its end.
func (a *API) content(r *http.Request) (filePart, error) {
	p := parametersOf(r)
	etag := p.query.Get("etag")
	if etag == "" || len(etag) > maxETagLen {
		p.fail(badRequest("etag: must be the etag that stat returned for the file"))
	}
	offset := p.number("offset", 0, 0, math.MaxInt64)
	length := p.number("length", contract.MaxFilePart, 1, contract.MaxFilePart)
	if p.err != nil {
		return filePart{}, p.err
	}
	part, err := a.Files.Part(p.query.Get("path"), etag, offset, length)
	if err != nil {
		return filePart{}, err
	}
	return filePart{part, part.Length()}, nil
}

// startUpload starts an upload, or resumes the one that an equal request started.
func (a *API) startUpload(r *http.Request) (any, error) {
	var s contract.UploadStart
	if err := decode(r, &s); err != nil {
		return nil, err
	}
	return a.Uploads.Start(s)
}

// putPart stores a part of a file while it arrives. Of a part that was cut, what arrived is
// kept, because each of its records is authentic.
func (a *API) putPart(r *http.Request) (any, error) {
	p := parametersOf(r)
	id, offset := p.id(uploads.ErrNoUpload), p.number("offset", 0, 0, math.MaxInt64)
	length := p.number("length", 0, 0, math.MaxInt64)
	if p.err != nil {
		return nil, p.err
	}
	if length > contract.MaxFilePart {
		return nil, errPartTooLarge
	}
	return a.Uploads.Put(id, offset, length, partOf(r))
}

// dropUpload deletes an upload that its sender gives up.
func (a *API) dropUpload(r *http.Request) (any, error) {
	p := parametersOf(r)
	id := p.id(uploads.ErrNoUpload)
	if p.err != nil {
		return nil, p.err
	}
	return contract.Upload{UploadID: id}, a.Uploads.Drop(id)
}

func (a *API) upload(r *http.Request) (any, error) { return a.pollUpload(r, a.Uploads.Get) }

// commitUpload gives a complete file its name. If the file is not verified after
// wait_seconds, it reports the progress.
func (a *API) commitUpload(r *http.Request) (any, error) {
	return a.pollUpload(r, func(ctx context.Context, id string, wait time.Duration) (contract.Upload, error) {
		var c contract.UploadCommit
		if err := decode(r, &c); err != nil {
			return contract.Upload{}, err
		}
		return a.Uploads.Commit(ctx, id, c.SHA256, wait)
	})
}

// pollUpload answers a long poll about one upload.
func (a *API) pollUpload(r *http.Request, ask func(ctx context.Context, id string, wait time.Duration) (contract.Upload, error)) (any, error) {
	p := parametersOf(r)
	id, wait := p.id(uploads.ErrNoUpload), p.wait()
	if p.err != nil {
		return nil, p.err
	}
	done, err := a.waitFor(r, wait)
	if err != nil {
		return nil, err
	}
	defer done()
	return ask(r.Context(), id, wait)
}
