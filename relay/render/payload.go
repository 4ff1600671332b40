package render

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
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
	switch {
	case mime == "image/svg+xml":
		return false
	case strings.HasPrefix(mime, "image/"), strings.HasPrefix(mime, "audio/"), strings.HasPrefix(mime, "video/"):
		return true
	}
	return mime == "application/pdf"
}

// Extension returns the file name extension for a MIME type.
func Extension(mime string) string {
	switch mime {
	case "image/png":
		return ".png"
	case "image/jpeg":
		return ".jpg"
	case "image/svg+xml":
		return ".svg"
	case "image/gif":
		return ".gif"
	case "image/webp":
		return ".webp"
	case "text/html":
		return ".html"
	case "text/plain":
		return ".txt"
	case "application/pdf":
		return ".pdf"
	}
	if strings.HasSuffix(mime, "json") {
		return ".json"
	}
	return ".bin"
}
