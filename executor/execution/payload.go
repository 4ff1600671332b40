package execution

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
)

// decodePayload writes the decoded form of a payload: the text of a JSON string, or its
// bytes if the MIME type is binary and so in base64; any other JSON as it is.
func decodePayload(w io.Writer, mime string, raw json.RawMessage) error {
	if raw[0] != '"' {
		_, err := w.Write(raw)
		return err
	}
	if !isBase64(mime) {
		return writeText(w, raw)
	}
	read, write := io.Pipe()
	go func() { write.CloseWithError(writeText(write, raw)) }()
	_, err := io.Copy(w, base64.NewDecoder(base64.StdEncoding, read))
	read.CloseWithError(err)
	return err
}

func writeText(w io.Writer, raw json.RawMessage) error {
	var failed error
	err := jupyter.Text(raw, contract.MaxStreamEvent, func(chunk []byte) {
		if failed == nil {
			_, failed = w.Write(chunk)
		}
	})
	return errors.Join(err, failed)
}

// isBase64 reports whether Jupyter encodes payloads of a MIME type in base64.
func isBase64(mime string) bool {
	kind, rest, _ := strings.Cut(mime, "/")
	switch kind {
	case "image":
		return rest != "svg+xml"
	case "audio", "video":
		return true
	}
	return mime == "application/pdf" || mime == "application/octet-stream"
}
