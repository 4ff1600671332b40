package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"colabrelay/shared/contract"
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
		part, err := c.blobPart(ctx, path, offset, blob.Bytes-offset)
		if err != nil {
			return err
		}
		only = part
		offset += int64(len(part.content))
		if offset > blob.Bytes || len(part.content) == 0 && offset < blob.Bytes {
			return breaksBounds(fmt.Sprintf("the blob does not have the %d bytes that the executor stated", blob.Bytes), nil)
		}
		whole.Write(part.content)
		if _, err := w.Write(part.content); err != nil {
			return fmt.Errorf("writing a blob: %w", err)
		}
		if offset == blob.Bytes {
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
