package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"colabrelay/shared/contract"
)

// Compare asks which of the manifest's files are there. The answer is of its first
// files, at least of one: the caller asks again with the rest.
func (c *Client) Compare(ctx context.Context, m contract.Manifest) ([]contract.Compared, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("writing a manifest: %w", err)
	}
	j := &job{client: c, build: c.post(contract.PathCompare, body), moves: true} // it only asks
	got, err := finish[contract.Comparison](ctx, j, always)
	if err != nil {
		return nil, err
	}
	if n := len(got.Files); n > len(m.Files) || n == 0 && len(m.Files) > 0 {
		return nil, miscounted(n, len(m.Files))
	}
	return got.Files, nil
}

// PutBatch sends a batch that AppendIndex made of n files. It may be sent as often as
// one likes: what is in its place already stays there.
func (c *Client) PutBatch(ctx context.Context, batch []byte, n int) ([]contract.BatchedFile, error) {
	got, err := call[contract.BatchAnswer](ctx, c, always, func() request {
		return request{method: http.MethodPost, path: contract.PathUploadBatch, body: batch, batch: true, wait: slowAction}
	})
	if err != nil {
		return nil, err
	}
	if len(got.Files) != n {
		return nil, miscounted(len(got.Files), n)
	}
	return got.Files, nil
}

func miscounted(got, want int) error {
	return problem(KindWrongProtocol, fmt.Sprintf("the executor answered about %d of %d files", got, want), nil)
}
