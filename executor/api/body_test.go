package api

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"io"
	"net/http"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

func zip(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	z.Write(b)
	z.Close()
	return out.Bytes()
}

func unzip(t testing.TB, b []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTheSizeAndEncodingOfABodyAreChecked(t *testing.T) {
	s := standWith(t, func(w http.ResponseWriter, r *http.Request) { w.Write(bodyOf(r)[:0]) })
	whole, over := make([]byte, contract.MaxBodyBytes), make([]byte, contract.MaxBodyBytes+1)
	for name, tc := range map[string]struct {
		body     []byte
		encoding string
		status   int
		code     contract.Code
	}{
		"at the bound":                  {body: whole, status: 200},
		"over the bound":                {body: over, status: 413, code: contract.CodeTooLarge},
		"gzip, at the bound unpacked":   {body: zip(t, whole), encoding: "gzip", status: 200},
		"gzip, over the bound unpacked": {body: zip(t, over), encoding: "gzip", status: 413, code: contract.CodeTooLarge},
		"gzip that is none":             {body: []byte("hello"), encoding: "gzip", status: 400, code: contract.CodeBadRequest},
		"gzip cut short":                {body: zip(t, whole)[:100], encoding: "gzip", status: 400, code: contract.CodeBadRequest},
		"an unsupported encoding":       {body: []byte("hello"), encoding: "br", status: 415, code: contract.CodeNotSupported},
		"identity":                      {body: []byte("hello"), encoding: "identity", status: 200},
		"none":                          {status: 200},
	} {
		for _, chunked := range []bool{false, true} {
			req := s.request("POST", "/x", tc.body)
			req.Header.Set("Content-Encoding", tc.encoding)
			if chunked {
				req.ContentLength = -1
			}
			res := s.signed(req, tc.body)
			if tc.code != "" {
				res.want(t, tc.status, tc.code)
			} else if res.StatusCode != tc.status {
				t.Errorf("%s (chunked %v): answer is %d %s", name, chunked, res.StatusCode, res.body)
			}
		}
	}
}

func TestABodyThatWasNotSignedGetsASignedRefusal(t *testing.T) {
	s := standWith(t, echo)
	e := s.signed(s.request("POST", "/x", []byte("evil")), []byte("good")).
		want(t, http.StatusBadRequest, contract.CodeBadRequest)
	if !strings.Contains(e.Message, "digest") {
		t.Errorf("message is %q", e.Message)
	}
}

func TestABodyIsDecompressedAfterItsDigestWasChecked(t *testing.T) {
	s := standWith(t, echo)
	plain := []byte(strings.Repeat("print('hello')\n", 100))
	packed := zip(t, plain)
	req := s.request("POST", "/x", packed)
	req.Header.Set("Content-Encoding", "gzip")
	if res := s.signed(req, packed); !bytes.Equal(res.body, plain) {
		t.Fatalf("handler saw %d bytes, want %d", len(res.body), len(plain))
	}
}

func TestAnswersAreCompressedIfThatHelps(t *testing.T) {
	s := standWith(t, echo)
	noise := make([]byte, 4096)
	rand.Read(noise)
	png := append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 4096)...)
	text := func(n int) []byte { return bytes.Repeat([]byte("a"), n) }
	for name, tc := range map[string]struct {
		body   []byte
		accept string
		gzip   bool
	}{
		"above the bound":         {text(contract.CompressAbove + 1), "gzip", true},
		"at the bound":            {text(contract.CompressAbove), "gzip", false},
		"not asked for":           {text(5000), "", false},
		"another coding":          {text(5000), "br, deflate", false},
		"one of several":          {text(5000), "br;q=1.0, GZIP;q=0.8", true},
		"refused by weight":       {text(5000), "gzip;q=0", false},
		"refused by weight 0.000": {text(5000), "gzip; q=0.000", false},
		"does not get smaller":    {noise, "gzip", false},
		"a picture":               {png, "gzip", false},
	} {
		t.Run(name, func(t *testing.T) {
			req := s.request("POST", "/x", tc.body)
			req.Header.Set("Accept-Encoding", tc.accept)
			res := s.signed(req, tc.body)
			if packed := res.Header.Get("Content-Encoding") == "gzip"; packed != tc.gzip {
				t.Fatalf("compressed: %v", packed)
			}
			got := res.body
			if tc.gzip {
				got = unzip(t, got)
			}
			if !bytes.Equal(got, tc.body) {
				t.Fatalf("%d of %d bytes were returned", len(got), len(tc.body))
			}
		})
	}
}

func FuzzDecompress(f *testing.F) {
	f.Add("gzip", []byte("\x1f\x8b"))
	f.Add("", []byte("x"))
	f.Fuzz(func(t *testing.T, encoding string, body []byte) {
		out, err := decompress(encoding, body)
		if err == nil && len(out) > contract.MaxBodyBytes {
			t.Fatalf("%d bytes got through", len(out))
		}
	})
}
