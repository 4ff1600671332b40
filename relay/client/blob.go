package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
)

// maxBlobBytes bounds a blob. An executor keeps no longer ones, because the log of an
// execution and its blobs are bounded to 256 MiB.
const maxBlobBytes = 256 << 20

// Blob writes a blob's bytes to w, in parts of at most contract.MaxBlobPart, each of which is
// requested until ctx ends. It never writes more than blob.Bytes. The digest is
// checked at the end: after an error, the bytes in w are meaningless.
func (c *Client) Blob(ctx context.Context, id string, blob contract.Blob, w io.Writer) error {
	path, err := executionPath(contract.PathBlob, id)
	if err != nil {
		return err
	}
	if blob.Number < 1 || blob.Number > contract.MaxBlobs || !contract.SHA256Pattern.MatchString(blob.SHA256) {
		return &contract.Error{Code: contract.CodeNotFound, Message: fmt.Sprintf("there is no blob %d with the SHA-256 %.80q", blob.Number, blob.SHA256), Hint: "Use the number and the sha256 from the execution's events."}
	}
	if blob.Bytes < 0 || blob.Bytes > maxBlobBytes {
		return breaksBounds(fmt.Sprintf("the executor's blob has %d bytes, over the limit of %d", blob.Bytes, maxBlobBytes), nil)
	}
	path = strings.Replace(path, "{number}", strconv.Itoa(blob.Number), 1)
	whole := sha256.New()
	var only blobPart // the last one, which is all of a blob that has one part
	for offset := int64(0); ; {
		part, err := c.writePart(ctx, path, contract.Range{Offset: offset, Length: blob.Bytes - offset}, io.MultiWriter(whole, w))
		if err != nil {
			return err
		}
		offset += int64(len(part.content))
		if offset == blob.Bytes {
			only = part
			break
		}
	}
	if hex.EncodeToString(whole.Sum(nil)) != blob.SHA256 {
		return problem(KindBadAnswer, "the blob's SHA-256 is not the one that its event states", nil)
	}
	if c.recorder != nil && int64(len(only.content)) == blob.Bytes {
		c.recorder.Fetched(only.instance.ID, id, blob, only.content)
	}
	return nil
}

// Blobs returns Blob for the execution id.
func (c *Client) Blobs(id string) func(ctx context.Context, blob contract.Blob, w io.Writer) error {
	return func(ctx context.Context, blob contract.Blob, w io.Writer) error { return c.Blob(ctx, id, blob, w) }
}

// ErrReportTooLong: a report's blob is over its bound.
var ErrReportTooLong = fmt.Errorf("%w: the kernel's report", bounded.ErrTooLong)

// ErrNoRoom: other calls hold so much at this moment that a report has no room. A later call has.
var ErrNoRoom = errors.New("other calls hold too much at this moment; try again")

// BlobReader is what ReadReport needs of a *Client.
type BlobReader interface {
	Blob(ctx context.Context, id string, blob contract.Blob, w io.Writer) error
}

// ReadReport returns what the relay's own code in the kernel reported, whose payload in the event is
// given: that, or the blob that it refers to, of at most most bytes. All reports that are fetched
// share the budget of displays, because a slow executor decides how long they are held.
func ReadReport(ctx context.Context, vm BlobReader, id string, payload json.RawMessage, most int64) (json.RawMessage, error) {
	var ref contract.BlobRef
	if json.Unmarshal(payload, &ref) != nil || ref.Blob.SHA256 == "" {
		return payload, nil
	}
	if ref.Blob.Bytes > most {
		return nil, fmt.Errorf("%w has %d bytes", ErrReportTooLong, ref.Blob.Bytes)
	}
	if more := ref.Blob.Bytes - memory.FreeDisplays; more > 0 {
		if !memory.Displays.Take(more) {
			return nil, ErrNoRoom
		}
		defer memory.Displays.Return(more)
	}
	b := bounded.Buffer{Max: most}
	err := vm.Blob(ctx, id, ref.Blob, &b)
	return b.Bytes(), err
}

// MaxInline is the length of a report that stands in its event. An executor makes a longer one a
// blob, so that a caller holds little while it waits.
const MaxInline = 2 * contract.InlineMIMEBytes

// writePart requests the next part of a blob, of which left is missing, and writes it to w. It
// keeps the turns of a large part (package memory) until it is written.
func (c *Client) writePart(ctx context.Context, path string, left contract.Range, w io.Writer) (blobPart, error) {
	ctx, done := memory.Hold(ctx)
	defer done()
	part, err := c.blobPart(ctx, path, left.Offset, left.Length)
	if err != nil {
		return part, err
	}
	n := int64(len(part.content))
	if n > left.Length || n == 0 && left.Length > 0 {
		return part, breaksBounds(fmt.Sprintf("the blob does not have the %d bytes that the executor stated", left.End()), nil)
	}
	if _, err := w.Write(part.content); err != nil {
		return part, fmt.Errorf("writing a blob: %w", err)
	}
	return part, nil
}

// blobPart is a part of a blob, and the executor that sent it.
type blobPart struct {
	content  []byte
	instance contract.Instance
}

func (c *Client) blobPart(ctx context.Context, path string, offset, left int64) (blobPart, error) {
	query := url.Values{}
	query.Set("offset", strconv.FormatInt(offset, 10))
	query.Set("length", strconv.FormatInt(min(max(left, 1), contract.MaxBlobPart), 10))
	a := &attempts{client: c, build: get(path, query)}
	got, err := c.retry(ctx, idempotent, func() (answer, error) { return a.attempt(ctx) })
	return blobPart{got.body, got.instance}, err
}
