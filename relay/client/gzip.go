package client

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"sync"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

const (
	encodingGzip  = "gzip"
	encodingPlain = "" // no Content-Encoding at all
)

// writers reuses compressors, because each needs about 800 KB.
var writers = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // cannot happen: BestSpeed is a level
	}
	return w
}}

// compress returns the bytes to send and their Content-Encoding: gzip for a body above
// contract.CompressAbove, if that makes it shorter.
func compress(body []byte) ([]byte, string) {
	if len(body) <= contract.CompressAbove {
		return body, encodingPlain
	}
	w := writers.Get().(*gzip.Writer)
	defer writers.Put(w)
	var out bytes.Buffer
	w.Reset(&out)
	_, _ = w.Write(body) // a bytes.Buffer does not fail
	_ = w.Close()
	if out.Len() >= len(body) {
		return body, encodingPlain
	}
	return out.Bytes(), encodingGzip
}

// decompress decodes a body of that encoding, up to max bytes.
func decompress(body []byte, encoding string, max int64) ([]byte, error) {
	switch encoding {
	case encodingPlain, "identity":
		return body, nil
	case encodingGzip:
	default:
		return nil, fmt.Errorf("unknown content encoding %q", encoding)
	}
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("decompressing: %w", err)
	}
	return bounded.ReadAll(r, max)
}
