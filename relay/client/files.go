package client

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/line"
)

// Files lists one folder, up to contract.MaxListFiles entries.
func (c *Client) Files(ctx context.Context, path string) (contract.Files, error) {
	return c.FilesAfter(ctx, path, "")
}

// FilesAfter lists the entries of a folder that follow the entry named after. Their paths are empty;
// contract.Files.At returns them.
func (c *Client) FilesAfter(ctx context.Context, path, after string) (contract.Files, error) {
	query := url.Values{"path": {path}}
	if after != "" {
		query.Set("after", after)
	}
	got, err := ask[contract.Files](ctx, c, get(contract.PathFiles, query))
	if err != nil {
		return got, err
	}
	return got, checkNames(&got)
}

// Bounds of names on the VM, in bytes. File systems that a program provides, such as mounts of a
// cloud's storage, have names of up to 1,024 bytes, a path has up to 4,096, and each byte may be
// escaped as four.
const (
	maxRemoteName = 4 * 1024
	maxRemotePath = 4 * 4096
)

// checkNames refuses names that no file has. The entries' own paths are dropped: contract.Files.At
// derives them, so that no answer states the folder's path a thousand times.
func checkNames(f *contract.Files) error {
	if len(f.Path) > maxRemotePath {
		return breaksBounds(fmt.Sprintf("the executor's answer has a path of over %d bytes", maxRemotePath), nil)
	}
	for i := range f.Files {
		if len(f.Files[i].Name) > maxRemoteName {
			return breaksBounds(fmt.Sprintf("the executor's answer has a name of over %d bytes", maxRemoteName), nil)
		}
		f.Files[i].Path = ""
	}
	return nil
}

// Stat describes path; with digest also its SHA-256, if that is known after wait (at most
// contract.MaxWait).
func (c *Client) Stat(ctx context.Context, path string, digest bool, wait time.Duration) (contract.FileStat, error) {
	query := url.Values{"path": {path}}
	if !digest {
		return ask[contract.FileStat](ctx, c, get(contract.PathStat, query))
	}
	return c.statDigest(ctx, query, wait)
}

// Prefix is Stat with the SHA-256 of the file's first size bytes. The executor refuses with
// contract.CodeChanged unless the file had the ETag, and is unchanged since or only became longer.
func (c *Client) Prefix(ctx context.Context, path, etag string, size int64, wait time.Duration) (contract.FileStat, error) {
	return c.statDigest(ctx, url.Values{"path": {path}, "etag": {etag}, "size": {strconv.FormatInt(size, 10)}}, wait)
}

func (c *Client) statDigest(ctx context.Context, query url.Values, wait time.Duration) (contract.FileStat, error) {
	return ask[contract.FileStat](ctx, c, func() request {
		wait := c.fitWait(ctx, wait)
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

// Content reads length bytes of p (1 to contract.MaxFilePart), fewer only at the end of the
// file, and writes them to to as they arrive. The executor refuses with contract.CodeChanged
// if the file changed since it had the ETag, other than by growing.
//
// It makes one attempt. The n bytes that it wrote are authentic, also if err is not nil: the
// caller continues after them. An error of to is returned unchanged.
func (c *Client) Content(ctx context.Context, p Part, length int64, to io.Writer) (n int64, err error) {
	if length < 1 || length > contract.MaxFilePart {
		return 0, fmt.Errorf("reading %d bytes of a file: must be 1 to %d", length, contract.MaxFilePart)
	}
	query := url.Values{"path": {p.Path}, "etag": {p.ETag}}
	query.Set("offset", strconv.FormatInt(p.Offset, 10))
	query.Set("length", strconv.FormatInt(length, 10))
	into := &incomingPart{to: to, length: length}
	_, err = c.once(ctx, func() request {
		return request{method: http.MethodGet, path: contract.PathContent, query: query, into: into, wait: slowRead}
	})
	return into.n, cmp.Or(into.failed, err)
}

const (
	// slowRead is how long the executor may take to read a part: a mounted Drive fetches it
	// over the network.
	slowRead = 10 * time.Second
	// slowSend is how long a part may seem to make no progress: bytes that are in this
	// system's buffers leave over a slow connection, shared with other parts, unnoticed.
	slowSend = 40 * time.Second
)

// StartUpload starts an upload. The same call resumes it and returns what is missing. With the
// SHA256 it has the executor verify the complete file and give it its name; after up to wait the
// upload is committed, is being hashed, or has missing parts. The executor refuses with
// contract.CodeChanged if it received other bytes. It continues on a new VM automatically if no
// attempt may have been accepted before.
func (c *Client) StartUpload(ctx context.Context, u contract.UploadStart, wait time.Duration) (contract.Upload, error) {
	body := encode(u)
	return call[contract.Upload](ctx, &attempts{client: c, moves: true, build: func() request {
		wait := c.fitWait(ctx, wait)
		return request{method: http.MethodPost, path: contract.PathUploads, query: url.Values{"wait_seconds": {decimal(wait)}}, body: body, wait: slowAction}
	}}, idempotent)
}

// PutPart sends the bytes r of file (at most contract.MaxFilePart), which are read and sealed
// while they are sent. It makes one attempt: after an error the executor has kept the bytes
// that arrived, which StartUpload reports.
func (c *Client) PutPart(ctx context.Context, id string, file io.ReaderAt, r contract.Range) error {
	path, err := uploadPath(contract.PathUpload, id)
	if err != nil {
		return err
	}
	query := url.Values{"offset": {strconv.FormatInt(r.Offset, 10)}, "length": {strconv.FormatInt(r.Length, 10)}}
	_, err = c.once(ctx, func() request {
		return request{method: http.MethodPut, path: path, query: query, part: &outgoingPart{file, r}, wait: slowSend}
	})
	return err
}

// DropUpload deletes an upload that will not be continued, with the bytes that the executor has.
func (c *Client) DropUpload(ctx context.Context, id string) error {
	path, err := uploadPath(contract.PathUpload, id)
	if err != nil {
		return err
	}
	_, err = ask[struct{}](ctx, c, func() request { return request{method: http.MethodDelete, path: path} })
	return err
}

func uploadPath(route, id string) (string, error) {
	return idPath(route, id, "upload", "Start the upload again.")
}

// Compare asks which of the manifest's files exist. The answer is about its first files, at
// least one: the caller calls again with the rest.
func (c *Client) Compare(ctx context.Context, m contract.Manifest) ([]contract.Compared, error) {
	a := &attempts{client: c, build: c.post(contract.PathCompare, encode(m)), moves: true} // it changes nothing
	got, err := call[contract.Comparison](ctx, a, idempotent)
	if n := len(m.Files) / 2; n > 0 && Shrinks(err) {
		m.Files = m.Files[:n]
		return c.Compare(ctx, m)
	}
	if err != nil {
		return nil, err
	}
	if n := len(got.Files); n > len(m.Files) || n == 0 && len(m.Files) > 0 {
		return nil, miscounted(n, len(m.Files))
	}
	return got.Files, nil
}

// PutBatch sends a batch that AppendIndex made of n files. It may be sent again: files that are
// at their targets already stay there.
func (c *Client) PutBatch(ctx context.Context, batch []byte, n int) ([]contract.BatchedFile, error) {
	got, err := ask[contract.BatchAnswer](ctx, c, func() request {
		return request{method: http.MethodPost, path: contract.PathUploadBatch, body: batch, wait: slowAction}
	})
	if err != nil {
		return nil, err
	}
	if len(got.Files) != n {
		return nil, miscounted(len(got.Files), n)
	}
	return got.Files, nil
}

// Contents reads many small files with one request: the first of paths, at least one. bytes has
// an item for each of files; that of a file with an Error is empty.
func (c *Client) Contents(ctx context.Context, paths []string) (files []contract.Content, bytes [][]byte, err error) {
	a := &attempts{client: c, build: c.post(contract.PathContents, encode(contract.ReadBatch{Paths: paths})), moves: true} // it changes nothing
	got, err := a.finish(ctx, idempotent)
	if n := len(paths) / 2; n > 0 && Shrinks(err) {
		return c.Contents(ctx, paths[:n])
	}
	if err != nil {
		return nil, nil, err
	}
	all, text, err := contract.SplitBatch(got.body)
	if err != nil {
		return nil, nil, problem(KindWrongProtocol, "the executor's answer cannot be read", err)
	}
	var index contract.Contents
	if err := read(ctx, text, &index); err != nil {
		return nil, nil, err
	}
	if n := len(index.Files); n > len(paths) || n == 0 && len(paths) > 0 {
		return nil, nil, miscounted(n, len(paths))
	}
	for _, f := range index.Files {
		size := f.SizeBytes
		if f.Error != nil {
			size = 0
		}
		if size < 0 || size > int64(len(all)) {
			return nil, nil, problem(KindWrongProtocol, "the sizes in the executor's answer do not fit its bytes", nil)
		}
		bytes = append(bytes, all[:size:size])
		all = all[size:]
	}
	return index.Files, bytes, nil
}

func miscounted(got, want int) error {
	return problem(KindWrongProtocol, fmt.Sprintf("the executor answered about %d of %d files", got, want), nil)
}

// outgoingPart is a part of a local file that is sent.
type outgoingPart struct {
	file io.ReaderAt
	contract.Range
}

func (p *outgoingPart) open() io.Reader { return io.NewSectionReader(p.file, p.Offset, p.Length) }

// incomingPart is where a part of a file goes as it arrives.
type incomingPart struct {
	to     io.Writer
	length int64 // requested
	n      int64 // bytes written
	failed error // of to
}

// receive writes the part in an answer whose head is verified. What it writes before an error
// is authentic. An error of the destination is in p.failed.
func (p *incomingPart) receive(x *auth.Exchange, res *http.Response, body io.Reader) error {
	_, err := io.Copy(p, line.AnswerBody(x, res, body, contract.MaxFilePart))
	return err
}

// Write implements io.Writer. It refuses bytes beyond the requested length.
func (p *incomingPart) Write(b []byte) (int, error) {
	if int64(len(b)) > p.length-p.n {
		return 0, breaksBounds(fmt.Sprintf("the executor's answer is longer than the %d bytes requested", p.length), nil)
	}
	n, err := p.to.Write(b)
	p.n += int64(n)
	p.failed = err
	return n, err
}
