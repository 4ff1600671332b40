package api

import (
	"net/http"

	"colabrelay/executor/journal"
	"colabrelay/shared/contract"
)

// compare reports which of many files the VM has.
func (a *API) compare(r *http.Request) (any, error) {
	var m contract.Manifest
	if err := decode(r, &m); err != nil {
		return nil, err
	}
	done, err := a.wait(r)
	if err != nil {
		return nil, err
	}
	defer done()
	return a.Digests.Compare(r.Context(), m)
}

// putBatch stores many small files. Each has its own answer.
func (a *API) putBatch(r *http.Request) (any, error) {
	bytes, index, err := contract.SplitBatch(bodyOf(r))
	if err != nil {
		return nil, badRequest("request body is not a batch of files")
	}
	var m contract.Manifest
	if err := decodeBytes(index, &m); err != nil {
		return nil, err
	}
	batched, err := a.Uploads.Batch(r.Context(), m, bytes)
	if err != nil {
		return nil, err
	}
	out := contract.BatchAnswer{Files: make([]contract.BatchedFile, len(batched))}
	for i, one := range batched {
		out.Files[i] = contract.BatchedFile{Path: one.Path, ETag: one.ETag, Error: a.fileError(r, one.Err)}
	}
	return out, nil
}

// readFiles reads many small files in one request. Each has its own answer.
func (a *API) readFiles(r *http.Request) ([]byte, error) {
	var request contract.ReadBatch
	if err := decode(r, &request); err != nil {
		return nil, err
	}
	done, err := a.wait(r)
	if err != nil {
		return nil, err
	}
	defer done()
	bytes, read, err := a.Files.ReadMany(r.Context(), request.Paths)
	if err != nil {
		return nil, err
	}
	index := contract.Contents{Files: make([]contract.Content, len(read))}
	for i, one := range read {
		index.Files[i] = contract.Content{SizeBytes: one.Size, ETag: one.ETag, Modified: one.Modified.UTC(), Error: a.fileError(r, one.Err)}
	}
	return contract.AppendIndex(bytes, index)
}

// maxFileError is how many bytes the error message about one of many files may have. With
// a thousand quoted paths of 4 KiB, the answer would exceed what a relay reads.
const maxFileError = 500

// fileError converts err to the error of one file in an answer about many.
func (a *API) fileError(r *http.Request, err error) *contract.Error {
	if err == nil {
		return nil
	}
	_, e := a.explain(r, err)
	e.Message = journal.Shorten(e.Message, maxFileError)
	return &e
}
