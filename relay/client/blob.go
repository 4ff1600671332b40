package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"colabrelay/shared/contract"
)

var sha256Pattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Blob writes a blob's bytes to w, in parts of at most contract.MaxBlobPart, each
// signed and each tried again until ctx ends. Only at the end is it known that the
// whole has the SHA-256 asked for: on an error, w holds bytes that mean nothing.
func (c *Client) Blob(ctx context.Context, id, sha string, w io.Writer) error {
	path, err := executionPath(contract.PathBlob, id)
	if err != nil {
		return err
	}
	if !sha256Pattern.MatchString(sha) {
		return &contract.Error{Code: contract.CodeNotFound, Message: fmt.Sprintf("there is no blob %.80q", sha), Hint: "take the sha256 from the execution's events"}
	}
	path = strings.Replace(path, "{sha256}", sha, 1)
	whole := sha256.New()
	for offset := int64(0); ; {
		part, err := c.blobPart(ctx, path, offset)
		if err != nil {
			return err
		}
		whole.Write(part)
		if _, err := w.Write(part); err != nil {
			return fmt.Errorf("writing a blob: %w", err)
		}
		offset += int64(len(part))
		if hex.EncodeToString(whole.Sum(nil)) == sha {
			return nil
		}
		if len(part) < contract.MaxBlobPart {
			return problem(KindBadAnswer, "the blob's SHA-256 is not the one it is known by", nil)
		}
	}
}

func (c *Client) blobPart(ctx context.Context, path string, offset int64) ([]byte, error) {
	query := url.Values{}
	query.Set("offset", strconv.FormatInt(offset, 10))
	query.Set("length", strconv.Itoa(contract.MaxBlobPart))
	got, err := c.retry(ctx, always, func() (answer, error) {
		return c.attempt(ctx, func() request { return request{method: http.MethodGet, path: path, query: query} })
	})
	return got.body, err
}
