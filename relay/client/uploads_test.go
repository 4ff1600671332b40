package client

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
	"colabrelay/shared/seal"
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
