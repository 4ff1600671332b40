package client

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
	"colabrelay/shared/seal"
	"colabrelay/shared/tier"
)

func TestAPartIsSentOnceAndUncompressed(t *testing.T) {
	e := newExecutor(t, func(seen) (int, any) { return http.StatusOK, contract.Upload{UploadID: "u", ReceivedBytes: 7} })
	c := e.acquainted(t)
	body := bytes.Repeat([]byte("x"), 100_000)
	file := bytes.NewReader(append(make([]byte, 42), body...))
	u, err := c.PutPart(t.Context(), "u-1", file, contract.Range{Offset: 42, Length: int64(len(body))})
	if err != nil || u.ReceivedBytes != 7 {
		t.Fatalf("%+v, %v", u, err)
	}
	got := e.all()[0]
	if diff := cmp.Diff([]string{http.MethodPut, "/v1/uploads/u-1", "length=100000&offset=42"}, []string{got.method, got.path, got.query}); diff != "" {
		t.Error(diff)
	}
	if !bytes.Equal(got.body, body) {
		t.Errorf("%d bytes", len(got.body))
	}
	if n := got.header.Get("Content-Length"); n != strconv.FormatInt(seal.PartSize(100_000), 10) {
		t.Errorf("%s bytes were sent", n)
	}
	if _, err := c.PutPart(t.Context(), "u-1", file, contract.Range{Offset: 42}); err != nil {
		t.Errorf("an empty part: %v", err)
	}
	e.setAfter(func(w http.ResponseWriter, _ *httptest.ResponseRecorder) bool { hangUp(w); return true })
	before := len(e.all())
	if _, err = c.PutPart(t.Context(), "u-1", file, contract.Range{Offset: 42, Length: int64(len(body))}); !Transient(err) {
		t.Errorf("error %v", err)
	}
	if got := len(e.all()) - before; got != 1 {
		t.Errorf("%d tries", got)
	}
}

func TestFilesAndUploadsAreAskedForUntilAnswered(t *testing.T) {
	tier.Long(t)
	up := contract.Upload{UploadID: "u", Status: contract.UploadHashing}
	for name, tc := range map[string]struct {
		call   func(*Client) (any, error)
		answer any
		want   string // method, path and query
		body   string
	}{
		"a page of names": {func(c *Client) (any, error) { return c.FilesAfter(t.Context(), "a b", "c&d") },
			contract.Files{Path: "a b"}, "GET /v1/files?after=c%26d&path=a+b", ""},
		"the first page": {func(c *Client) (any, error) { return c.Files(t.Context(), "a") },
			contract.Files{Path: "a"}, "GET /v1/files?path=a", ""},
		"stat": {func(c *Client) (any, error) { return c.Stat(t.Context(), "a", false, time.Minute) },
			contract.FileStat{ETag: "e"}, "GET /v1/files/stat?path=a", ""},
		"stat with a digest": {func(c *Client) (any, error) { return c.Stat(t.Context(), "a", true, time.Minute) },
			contract.FileStat{ETag: "e"}, "GET /v1/files/stat?digest=1&path=a&wait_seconds=50", ""},
		"start": {func(c *Client) (any, error) {
			return c.StartUpload(t.Context(), contract.UploadStart{Path: "a", SizeBytes: 3, Version: "v"})
		}, up, "POST /v1/uploads?", `{"path":"a","size_bytes":3,"version":"v"}`},
		"upload": {func(c *Client) (any, error) { return c.Upload(t.Context(), "u-1", 1500*time.Millisecond) },
			up, "GET /v1/uploads/u-1?wait_seconds=1.5", ""},
		"commit": {func(c *Client) (any, error) { return c.CommitUpload(t.Context(), "u-1", "s", 0) },
			up, "POST /v1/uploads/u-1/commit?wait_seconds=0", `{"sha256":"s"}`},
	} {
		t.Run(name, func(t *testing.T) {
			e := newExecutor(t, func(seen) (int, any) { return http.StatusOK, tc.answer })
			c := e.acquainted(t)
			e.setAfter(first(func(w http.ResponseWriter) bool { hangUp(w); return true }))
			got, err := tc.call(c)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := asJSON(t, got), asJSON(t, tc.answer); a != b {
				t.Errorf("answer %s, want %s", a, b)
			}
			all := e.all()
			if len(all) != 2 {
				t.Fatalf("%d tries", len(all))
			}
			if asked := all[1].method + " " + all[1].path + "?" + all[1].query; asked != tc.want || string(all[1].body) != tc.body {
				t.Errorf("asked for %s with %q, want %s with %q", asked, all[1].body, tc.want, tc.body)
			}
		})
	}
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestUploadIDsThatAreNoneAreNotAskedFor(t *testing.T) {
	e, _ := newRunningExecutor(t)
	c := e.client(t)
	for _, id := range []string{"", "..", "a/b", "a?b", strings.Repeat("a", 129)} {
		_, err := c.PutPart(t.Context(), id, nil, contract.Range{})
		wantCode(t, err, contract.CodeNotFound)
		_, err = c.Upload(t.Context(), id, 0)
		wantCode(t, err, contract.CodeNotFound)
		_, err = c.CommitUpload(t.Context(), id, "s", 0)
		wantCode(t, err, contract.CodeNotFound)
	}
	if got := len(e.all()); got != 0 {
		t.Errorf("%d requests", got)
	}
}
