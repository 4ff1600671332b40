package api

import (
	"context"
	"math"
	"net/http"
	"time"

	"colabrelay/executor/uploads"
	"colabrelay/shared/contract"
)

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
