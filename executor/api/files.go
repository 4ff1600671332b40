package api

import (
	"context"
	"math"
	"net/http"

	"colabrelay/executor/journal"
	"colabrelay/executor/uploads"
	"colabrelay/shared/contract"
)

// maxETagLen is how many bytes an etag in a query may have.
const maxETagLen = 200

func (a *API) listFiles(p *parameters) action {
	path, after := p.text("path"), p.text("after")
	return func(ctx context.Context) (any, error) { return a.Files.List(ctx, path, after) }
}

// stat describes the file or folder at a path. With digest=1 it includes the file's
// SHA-256, or the progress of hashing if that is not finished after wait_seconds. With an etag
// too, it is that of the first size bytes of the file that had the etag and may have grown since.
func (a *API) stat(p *parameters) action {
	path, digest, wait := p.text("path"), p.number("digest", 0, 0, 1), p.wait()
	etag, size := p.text("etag"), p.number("size", 0, 0, math.MaxInt64)
	if len(etag) > maxETagLen {
		p.fail(badRequest("etag: must be the etag of a file"))
	}
	return func(ctx context.Context) (any, error) {
		if digest == 0 {
			return a.Files.Stat(path)
		}
		return a.Digests.Stat(ctx, path, etag, size, wait)
	}
}

// content serves a part of a file: length bytes, or fewer at its end.
func (a *API) content(p *parameters) action {
	path, etag := p.text("path"), p.text("etag")
	if etag == "" || len(etag) > maxETagLen {
		p.fail(badRequest("etag: must be the etag that stat returned for the file"))
	}
	offset := p.number("offset", 0, 0, math.MaxInt64)
	length := p.number("length", contract.MaxFilePart, 1, contract.MaxFilePart)
	return func(context.Context) (any, error) {
		part, err := a.Files.Part(path, etag, offset, length)
		if err != nil {
			return nil, err
		}
		return filePart{part, part.Length()}, nil
	}
}

// compare reports which of many files the VM has.
func (a *API) compare(p *parameters) action {
	var m contract.Manifest
	p.body(&m)
	p.waits = true
	return func(ctx context.Context) (any, error) { return a.Digests.Compare(ctx, m) }
}

// readFiles reads many small files in one request. Each has its own answer.
func (a *API) readFiles(p *parameters) action {
	var request contract.ReadBatch
	p.body(&request)
	p.waits = true
	return func(ctx context.Context) (any, error) {
		bytes, read, err := a.Files.ReadMany(ctx, request.Paths, a.fileError(p.r))
		if err != nil {
			return nil, err
		}
		return contract.AppendIndex(bytes, contract.Contents{Files: read})
	}
}

// putBatch stores many small files. Each has its own answer.
func (a *API) putBatch(p *parameters) action {
	var m contract.Manifest
	bytes, index, err := contract.SplitBatch(callOf(p.r).body)
	if err != nil {
		p.fail(badRequest("request body is not a batch of files"))
	}
	p.fail(decode(index, &m))
	return func(ctx context.Context) (any, error) {
		batched, err := a.Uploads.Batch(ctx, m, bytes, a.fileError(p.r))
		return contract.BatchAnswer{Files: batched}, err
	}
}

// maxFileError is how many bytes the error message about one of many files may have. With
// a thousand quoted paths of 4 KiB, the answer would exceed what a relay reads.
const maxFileError = 500

// fileError converts an error to that of one file in an answer about many.
func (a *API) fileError(r *http.Request) func(error) *contract.Error {
	return func(err error) *contract.Error {
		_, e := a.explain(r, err)
		e.Message = journal.Shorten(e.Message, maxFileError)
		return &e
	}
}

// startUpload starts an upload, or resumes or commits the one that an equal request started.
func (a *API) startUpload(p *parameters) action {
	var s contract.UploadStart
	p.body(&s)
	wait := p.wait()
	return func(ctx context.Context) (any, error) { return a.Uploads.Start(ctx, s, wait) }
}

// putPart stores a part of a file while it arrives. Of a part that was cut, what arrived is
// kept, because each of its records is authentic.
func (a *API) putPart(p *parameters) action {
	id, offset := p.id(uploads.ErrNoUpload), p.number("offset", 0, 0, math.MaxInt64)
	length := p.number("length", 0, 0, math.MaxInt64)
	if length > contract.MaxFilePart {
		p.fail(errPartTooLarge)
	}
	return func(context.Context) (any, error) { return struct{}{}, a.Uploads.Put(id, offset, length, partOf(p.r)) }
}

// dropUpload deletes an upload that its sender gives up.
func (a *API) dropUpload(p *parameters) action {
	id := p.id(uploads.ErrNoUpload)
	return func(context.Context) (any, error) { return struct{}{}, a.Uploads.Drop(id) }
}
