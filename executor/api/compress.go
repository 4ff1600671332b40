package api

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"slices"
	"strings"
	"sync"

	"colabrelay/shared/contract"
)

// Level 1 compresses a tenth less than level 6 and is four times as fast.
var gzipWriters = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	return z
}}

// sampleBytes is how much of a long body is compressed to find out whether compression pays.
const sampleBytes = 64 << 10

// compress returns body gzipped, or nil if it should be sent uncompressed: if the caller
// does not accept gzip, if body is short, or if compression saves less than a fifth. Then
// the time is better saved, and the received part of a cut answer remains usable.
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
	z.Write(body) // writing to a bytes.Buffer never fails
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

// refuses reports whether the parameters of a coding are the weight zero.
func refuses(params string) bool {
	q, ok := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=")
	return ok && strings.Trim(q, "0.") == ""
}

// alreadyCompressed reports whether body looks like an image, audio, video or archive.
func alreadyCompressed(body []byte) bool {
	t := http.DetectContentType(body)
	prefixes := []string{"image/", "video/", "audio/", "application/zip", "application/x-gzip"}
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(t, prefix) })
}
