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
	"testing"
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

func TestTheSearchFindsEveryForm(t *testing.T) {
	const mark = "zqxMark7Kd93Vb2Lm5"
	packed := func(text string) string {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		_, _ = io.WriteString(z, strings.Repeat("before ", 100)+text+" after")
		_ = z.Close()
		return out.String()
	}
	encoded := func(enc *base64.Encoding, before int) string {
		return enc.EncodeToString([]byte(strings.Repeat("\xff", before) + mark + "\xfe\xfd"))
	}
	for form, text := range map[string]string{
		"plain": mark, "upper case": strings.ToUpper(mark),
		"base64, 0": encoded(base64.StdEncoding, 0), "base64, 1": encoded(base64.StdEncoding, 1), "base64, 2": encoded(base64.StdEncoding, 2),
		"base64url, 3": encoded(base64.URLEncoding, 3), "base64url, 4": encoded(base64.RawURLEncoding, 4), "base64url, 5": encoded(base64.RawURLEncoding, 5),
		"hexadecimal": fmt.Sprintf("%x", mark), "HEXADECIMAL": fmt.Sprintf("%X", mark),
		"percent": "%7A" + forms(mark)["percent escapes"][3:], "unicode": forms(mark)[`\u escapes`], "wide": "z\x00" + forms(mark)["UTF-16"][2:],
		"gzip": packed(mark), "base64 in gzip": packed(encoded(base64.StdEncoding, 1)), "cut gzip": packed(mark)[:len(packed(mark))-8],
		"chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n" + mark[:7] + "\r\nb\r\n" + mark[7:] + "\r\n0\r\n\r\n",
	} {
		for _, around := range []string{"", "GET / HTTP/1.1\r\n\x1f\x8b\x08"} {
			if find(mark, viewsOf([]byte("nothing"), []byte(around+text))) == "" {
				t.Errorf("%s: not found", form)
			}
		}
	}
	for _, text := range []string{"", "nothing", mark[1:], packed(mark[1:]), encoded(base64.StdEncoding, 1)[8:]} {
		if form := find(mark, viewsOf([]byte(text))); form != "" {
			t.Errorf("found in %q, %s", text, form)
		}
	}
}
