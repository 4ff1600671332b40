package colabapi

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"

	"colabrelay/relay/vm"
)

const (
	// chunkSize is how much of a file one request carries, before base64. Colab's own page
	// sends chunks of this size; larger requests were refused (unverified).
	chunkSize = 1 << 20
	// uploadTries bounds how often a file is sent whole.
	uploadTries = 3
)

// contentsFile is the model of a file in Jupyter's contents API.
type contentsFile struct {
	Type    string `json:"type"`
	Format  string `json:"format"`
	Content string `json:"content"`
	Chunk   int    `json:"chunk,omitempty"` // 1, 2, …, -1 for the last; 0 for a file in one piece
}

// Upload implements vm.Backend. A chunk whose answer was lost is never sent again, because
// the server would append it twice: the whole file is. The file is then read back.
func (b *Backend) Upload(ctx context.Context, id, remotePath string, content []byte) error {
	fail := func(err error) error { return fmt.Errorf("upload %q to VM %q: %w", remotePath, id, err) }
	j, err := b.jupyterOf(id)
	switch {
	case err != nil:
		return err
	case !strings.HasPrefix(remotePath, "/") || path.Clean(remotePath) != remotePath || strings.ContainsRune(remotePath, 0):
		return fail(errors.New("the path must be absolute, without empty or dotted parts"))
	case len(content) > vm.MaxUpload:
		return fail(fmt.Errorf("it has %d bytes, and at most %d can be sent", len(content), vm.MaxUpload))
	}
	var last error
	for range uploadTries {
		if last = j.uploadOnce(ctx, remotePath, content); last == nil {
			return nil
		}
		if refused, ok := errors.AsType[*jupyterError](last); ok && refused.status/100 == 4 || ctx.Err() != nil || gone(last) {
			break
		}
	}
	return fail(last)
}

func (j jupyter) uploadOnce(ctx context.Context, remotePath string, content []byte) error {
	for start, chunk := 0, 1; start < len(content) || chunk == 1; chunk++ {
		piece := content[start:min(start+chunkSize, len(content))]
		start += len(piece)
		model := contentsFile{Type: "file", Format: "base64", Content: base64.StdEncoding.EncodeToString(piece), Chunk: chunk}
		switch {
		case start == len(content) && chunk == 1:
			model.Chunk = 0
		case start == len(content):
			model.Chunk = -1
		}
		if _, err := j.do(ctx, http.MethodPut, "/api/contents"+remotePath, model); err != nil {
			return err
		}
	}
	same, err := j.compareFile(ctx, remotePath, content)
	if err == nil && !same {
		err = errors.New("the file that arrived there is another one")
	}
	return err
}
