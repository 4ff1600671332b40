package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// view is a text to be searched, in lower case: as it is, or as it is unpacked.
type view struct {
	how  string
	text []byte
}

// chunkSize is what stands between two chunks of HTTP.
var chunkSize = regexp.MustCompile(`\r\n[0-9a-fA-F]+\r\n`)

// viewsOf returns all views of texts: plain, with the chunks of HTTP joined, and everything
// that begins as gzip does, also if it is cut.
func viewsOf(texts ...[]byte) (all []view) {
	for _, text := range texts {
		joined := chunkSize.ReplaceAll(text, nil)
		all = append(append(all, view{"", bytes.ToLower(text)}), unpacked(text)...)
		if len(joined) < len(text) {
			all = append(append(all, view{"in chunks, ", bytes.ToLower(joined)}), unpacked(joined)...)
		}
	}
	return all
}

func unpacked(text []byte) (all []view) {
	for magic := []byte("\x1f\x8b\x08"); ; text = text[len(magic):] {
		i := bytes.Index(text, magic)
		if i < 0 {
			return all
		}
		text = text[i:]
		if z, err := gzip.NewReader(bytes.NewReader(text)); err == nil {
			inside, _ := io.ReadAll(io.LimitReader(z, 64<<20))
			all = append(all, view{"in gzip, ", bytes.ToLower(inside)})
		}
	}
}

// find returns in which form a mark is in any of the views, or "". It knows plain bytes,
// base64 at each alignment, hexadecimal, percent and \u escapes, and UTF-16. The case does
// not count, not even in base64: a long mark is not met by chance.
func find(mark string, views []view) string {
	for form, pattern := range forms(mark) {
		lower := []byte(strings.ToLower(pattern))
		for _, v := range views {
			if bytes.Contains(v.text, lower) {
				return v.how + form
			}
		}
	}
	return ""
}

func forms(mark string) map[string]string {
	all := map[string]string{"plain": mark, "hexadecimal": hex.EncodeToString([]byte(mark))}
	var percent, unicode, wide strings.Builder
	for _, b := range []byte(mark) {
		fmt.Fprintf(&percent, "%%%02x", b)
		fmt.Fprintf(&unicode, `\u%04x`, b)
		wide.Write([]byte{b, 0})
	}
	all["percent escapes"], all[`\u escapes`], all["UTF-16"] = percent.String(), unicode.String(), wide.String()
	for before := range 3 {
		for name, enc := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding, "base64url": base64.RawURLEncoding} {
			// The characters at both ends also depend on the neighbours of the mark.
			text := enc.EncodeToString(append(make([]byte, before), mark...))
			all[fmt.Sprint(name, " after ", before)] = text[[]int{0, 2, 3}[before] : len(text)-1]
		}
	}
	return all
}
