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

// writers keeps compressors: each holds some 800 KB.
var writers = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // BestSpeed is a level
	}
	return w
}}

// compress makes of body what is sent, and its Content-Encoding: gzip above
// contract.CompressAbove where that helps.
func compress(body []byte) ([]byte, string) {
	if len(body) <= contract.CompressAbove {
		return body, encodingPlain
	}
	w := writers.Get().(*gzip.Writer)
	defer writers.Put(w)
	var out bytes.Buffer
	w.Reset(&out)
	_, _ = w.Write(body) // a bytes.Buffer takes everything
	_ = w.Close()
	if out.Len() >= len(body) {
		return body, encodingPlain
	}
	return out.Bytes(), encodingGzip
}

// decompress undoes encoding, up to max bytes.
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
