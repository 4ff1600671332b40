package render

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"colabrelay/shared/contract"
)

// WritePayload writes the decoded payload of one MIME type of an event to w. fetch reads a
// payload that is a blob.
func WritePayload(ctx context.Context, mime string, raw json.RawMessage, fetch Fetch, w io.Writer) error {
	if blob, ok := blobOf(raw); ok {
		return fetch(ctx, blob, w)
	}
	content := []byte(text(raw))
	if inBase64(mime) {
		var err error
		// Kernels send line breaks in base64, because front ends accept them.
		content, err = base64.StdEncoding.DecodeString(strings.NewReplacer("\n", "", "\r", "", " ", "").Replace(string(content)))
		if err != nil {
			return err
		}
	}
	_, err := w.Write(content)
	return err
}

// PayloadBytes returns about how many bytes a payload has, as its event states.
func PayloadBytes(raw json.RawMessage) int64 {
	if blob, ok := blobOf(raw); ok {
		return blob.Bytes
	}
	return int64(len(raw))
}

// blobOf returns the reference in a payload, if the payload is one.
func blobOf(raw json.RawMessage) (contract.Blob, bool) {
	var ref contract.BlobRef
	if len(raw) > 300 || len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &ref) != nil {
		return contract.Blob{}, false
	}
	return ref.Blob, ref.Blob.SHA256 != ""
}

// inBase64 reports whether payloads of this type are sent as base64. SVG is text.
func inBase64(mime string) bool {
	kind, _, _ := strings.Cut(mime, "/")
	return mime != "image/svg+xml" && slices.Contains([]string{"image", "audio", "video"}, kind) || mime == "application/pdf"
}

// Extension returns the file name extension for a MIME type.
func Extension(mime string) string {
	if strings.HasSuffix(mime, "json") {
		return ".json"
	}
	return cmp.Or(extensions[mime], ".bin")
}

var extensions = map[string]string{
	"image/png": ".png", "image/jpeg": ".jpg", "image/svg+xml": ".svg", "image/gif": ".gif", "image/webp": ".webp",
	"text/html": ".html", "text/plain": ".txt", "application/pdf": ".pdf",
}
