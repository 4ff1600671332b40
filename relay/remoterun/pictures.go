package remoterun

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

// pictureKinds are the MIME types that are saved as files, best first.
var pictureKinds = []struct{ mime, extension string }{{"image/png", ".png"}, {"image/jpeg", ".jpg"}, {"image/gif", ".gif"}, {"image/svg+xml", ".svg"}}

// maxPictureBytes bounds the pictures of one run on the disk. Over hours, a run may show
// more than an executor keeps at any time.
const maxPictureBytes = 2 << 30

// picture is one MIME payload of an event.
type picture struct {
	name   string
	base64 bool // if the payload is inline
	raw    json.RawMessage
}

// pictureOf returns the best picture of an event, if there is one.
func pictureOf(ev contract.Event) (picture, bool) {
	for _, kind := range pictureKinds {
		if raw, ok := ev.Data[kind.mime]; ok {
			return picture{fmt.Sprintf("%d%s", ev.Offset, kind.extension), kind.extension != ".svg", raw}, true
		}
	}
	return picture{}, false
}

// pictureFolder saves pictures below dir, at most maxPictureBytes.
type pictureFolder struct {
	dir   string
	saved int64 // bytes
}

// save writes a picture of the execution id and returns its path.
func (f *pictureFolder) save(ctx context.Context, c *client.Client, id string, pic picture) (path string, err error) {
	if !contract.RequestIDPattern.MatchString(id) || strings.Trim(id, ".") == "" { // it becomes the name of a folder
		return "", fmt.Errorf("the execution id %.40q cannot be used as a name", id)
	}
	var ref contract.BlobRef
	_ = json.Unmarshal(pic.raw, &ref) // an inline picture has no reference
	if f.saved += int64(len(pic.raw)) + max(ref.Blob.Bytes, 0); f.saved > maxPictureBytes {
		return "", fmt.Errorf("this run's pictures exceed %d GiB", maxPictureBytes>>30)
	}
	dir := filepath.Join(f.dir, "executions", id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path = filepath.Join(dir, pic.name)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	err = pic.write(ctx, c, id, file)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		os.Remove(path)
	}
	return path, err
}

func (pic picture) write(ctx context.Context, c *client.Client, id string, w io.Writer) error {
	var inline string
	if !pic.base64 || json.Unmarshal(pic.raw, &inline) != nil {
		return writePayload(ctx, c, id, pic.raw, w)
	}
	content, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(inline, "\n", ""))
	if err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}
