package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"colabrelay/shared/contract"
)

// Files lists one folder, up to contract.MaxListFiles entries.
func (c *Client) Files(ctx context.Context, path string) (contract.Files, error) {
	return c.FilesAfter(ctx, path, "")
}

// FilesAfter lists what comes in a folder after the entry of the name after.
func (c *Client) FilesAfter(ctx context.Context, path, after string) (contract.Files, error) {
	query := url.Values{"path": {path}}
	if after != "" {
		query.Set("after", after)
	}
	return call[contract.Files](ctx, c, idempotent, get(contract.PathFiles, query))
}

// Stat says what path is; with digest also its SHA-256, when that is known after wait
// (at most contract.MaxWait).
func (c *Client) Stat(ctx context.Context, path string, digest bool, wait time.Duration) (contract.FileStat, error) {
	return call[contract.FileStat](ctx, c, idempotent, func() request {
		query := url.Values{"path": {path}}
		if !digest {
			return request{method: http.MethodGet, path: contract.PathStat, query: query}
		}
		wait := fitWait(ctx, wait)
		query.Set("digest", "1")
		query.Set("wait_seconds", decimal(wait))
		return request{method: http.MethodGet, path: contract.PathStat, query: query, wait: wait}
	})
}

// Part is a piece of a file on the VM.
type Part struct {
	Path   string
	ETag   string // from Stat
	Offset int64
}

// Content reads the bytes of p into buf, whose length (1 to contract.MaxFilePart) is
// how many are asked for; fewer come only at the end of the file. The executor refuses
// with contract.CodeChanged when ETag is no longer the file's.
//
// It tries once. err is nil only when the executor's signature over all n bytes held.
// With an error, the first n bytes of buf are what came of an answer that was cut:
// its head was signed, its length fits, but nothing proves these bytes, so they are
// worth keeping only for a digest of the whole to judge. What follows them in buf
// means nothing.
func (c *Client) Content(ctx context.Context, p Part, buf []byte) (n int, err error) {
	if len(buf) == 0 || len(buf) > contract.MaxFilePart {
		return 0, fmt.Errorf("reading %d bytes of a file: want 1 to %d", len(buf), contract.MaxFilePart)
	}
	query := url.Values{"path": {p.Path}, "etag": {p.ETag}}
	query.Set("offset", strconv.FormatInt(p.Offset, 10))
	query.Set("length", strconv.Itoa(len(buf)))
	got, err := c.once(ctx, func() request {
		return request{method: http.MethodGet, path: contract.PathContent, query: query, into: buf, wait: slowRead}
	})
	if err != nil {
		return got.unverified, err
	}
	return len(got.body), nil
}

const (
	// slowRead is how long the executor may take to read a part: a mounted Drive
	// fetches it from afar.
	slowRead = 10 * time.Second
	// slowSend is how long a part may seem to stand still: what this system's buffers
	// took of it leaves a slow line, shared with other parts, without a sign.
	slowSend = 40 * time.Second
)

// StartUpload begins an upload. The same call resumes it, and tells what is missing. It
// goes to a new VM by itself where no try of it may have been accepted before.
func (c *Client) StartUpload(ctx context.Context, u contract.UploadStart) (contract.Upload, error) {
	body, err := json.Marshal(u)
	if err != nil {
		return contract.Upload{}, fmt.Errorf("writing the start of an upload: %w", err)
	}
	return finish[contract.Upload](ctx, &attempts{client: c, build: c.post(contract.PathUploads, body), moves: true}, idempotent)
}

// PutPart sends body, at most contract.MaxFilePart bytes, as the file's bytes from
// offset on, which must not change meanwhile. It tries once: after an error the
// executor may have kept some of it, as Upload tells.
func (c *Client) PutPart(ctx context.Context, id string, offset int64, body []byte) (contract.Upload, error) {
	var u contract.Upload
	path, err := uploadPath(contract.PathUpload, id)
	if err != nil {
		return u, err
	}
	query := url.Values{"offset": {strconv.FormatInt(offset, 10)}}
	got, err := c.once(ctx, func() request {
		return request{method: http.MethodPut, path: path, query: query, body: body, part: true, wait: slowSend}
	})
	if err != nil {
		return u, err
	}
	return u, read(got.body, &u)
}

// Upload asks how an upload stands; while the executor checks the whole, it waits up
// to wait (at most contract.MaxWait) for the end of that.
func (c *Client) Upload(ctx context.Context, id string, wait time.Duration) (contract.Upload, error) {
	return c.askUpload(ctx, http.MethodGet, contract.PathUpload, id, wait)
}

// CommitUpload asks for the file to be put in its place, as often as one likes. The
// answer, after up to wait, is a committed upload, one that is being hashed, or one
// that misses something.
func (c *Client) CommitUpload(ctx context.Context, id string, wait time.Duration) (contract.Upload, error) {
	return c.askUpload(ctx, http.MethodPost, contract.PathUploadCommit, id, wait)
}

func (c *Client) askUpload(ctx context.Context, method, route, id string, wait time.Duration) (contract.Upload, error) {
	path, err := uploadPath(route, id)
	if err != nil {
		return contract.Upload{}, err
	}
	return call[contract.Upload](ctx, c, idempotent, func() request {
		wait := fitWait(ctx, wait)
		return request{method: method, path: path, query: url.Values{"wait_seconds": {decimal(wait)}}, wait: wait}
	})
}

func uploadPath(route, id string) (string, error) {
	return idPath(route, id, "upload", "begin the upload again")
}
