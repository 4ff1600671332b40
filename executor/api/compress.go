package api

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"sync"

	"colabrelay/shared/contract"
)

// Level 1: the loss against level 6 is a tenth, the gain is four times the speed.
var gzipWriters = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	return z
}}

// sampleBytes is how much of a long body is compressed to see whether that pays.
const sampleBytes = 64 << 10

// compress is body gzipped, nil where it goes as it is: when the caller takes no
// gzip, body is within the bound, or it would not get smaller by a fifth. Less is
// not worth the time, and what came of a cut answer can be used only uncompressed.
func compress(r *http.Request, body []byte) *bytes.Buffer {
	if len(body) <= contract.CompressAbove || !acceptsGzip(r) || alreadyCompressed(body) {
		return nil
	}
	if len(body) > sampleBytes {
		sample := gzipped(body[:sampleBytes])
		defer recycle(sample)
		if !smallEnough(sample, sampleBytes) {
			return nil
		}
	}
	whole := gzipped(body)
	if !smallEnough(whole, len(body)) {
		recycle(whole)
		return nil
	}
	return whole
}

func smallEnough(packed *bytes.Buffer, plain int) bool { return 5*packed.Len() <= 4*plain }

func gzipped(body []byte) *bytes.Buffer {
	out := newBuffer(len(body))
	z := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(z)
	z.Reset(out)
	z.Write(body) // a bytes.Buffer takes everything
	z.Close()
	return out
}

func acceptsGzip(r *http.Request) bool {
	for _, field := range r.Header.Values("Accept-Encoding") {
		for coding := range strings.SplitSeq(field, ",") {
			name, params, _ := strings.Cut(strings.TrimSpace(coding), ";")
			if strings.EqualFold(strings.TrimSpace(name), "gzip") && !refuses(params) {
				return true
			}
		}
	}
	return false
}

// refuses reports whether a coding's parameters are the weight zero.
func refuses(params string) bool {
	q, ok := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=")
	return ok && strings.Trim(q, "0.") == ""
}

// alreadyCompressed reports whether body begins as something compressed already: a picture,
// sound, film or archive.
func alreadyCompressed(body []byte) bool {
	t := http.DetectContentType(body)
	for _, prefix := range []string{"image/", "video/", "audio/", "application/zip", "application/x-gzip"} {
		if strings.HasPrefix(t, prefix) {
			return true
		}
	}
	return false
}
