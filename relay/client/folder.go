package client

import (
	"context"
	"fmt"
	"net/http"

	"colabrelay/shared/contract"
)

// Compare asks which of the manifest's files exist. The answer is about its first files, at
// least one: the caller calls again with the rest.
func (c *Client) Compare(ctx context.Context, m contract.Manifest) ([]contract.Compared, error) {
	a := &attempts{client: c, build: c.post(contract.PathCompare, encode(m)), moves: true} // it changes nothing
	got, err := finishHeld[contract.Comparison](ctx, a, idempotent)
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
	got, err := held[contract.BatchAnswer](ctx, c, idempotent, func() request {
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
