package client

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

// blobs serves one blob in parts.
func blobs(t *testing.T, content []byte) (*executor, string) {
	e := newExecutor(t, func(s seen) (int, any) {
		query, err := url.ParseQuery(s.query)
		if err != nil {
			return 400, refusalBody(contract.CodeBadRequest)
		}
		offset, _ := strconv.Atoi(query.Get("offset"))
		length, _ := strconv.Atoi(query.Get("length"))
		if length > contract.MaxBlobPart {
			return 400, refusalBody(contract.CodeBadRequest)
		}
		return 200, append([]byte{}, content[offset:min(offset+length, len(content))]...)
	})
	return e, fmt.Sprintf("%x", sha256.Sum256(content))
}

func TestBlobWithAnotherSHA256IsRefused(t *testing.T) {
	e, _ := blobs(t, []byte("hello"))
	var got bytes.Buffer
	err := e.client(t).Blob(t.Context(), "e-1", contract.Blob{Number: 7, SHA256: strings.Repeat("0", 64), Bytes: 5}, &got)
	wantKind(t, err, KindBadAnswer)
}

func TestBlobIsResumedWhereItBroke(t *testing.T) {
	content := make([]byte, contract.MaxBlobPart+1)
	_, _ = rand.Read(content)
	e, sha := blobs(t, content)
	broken := false
	e.setAfter(func(w http.ResponseWriter, a *httptest.ResponseRecorder) bool {
		if a.Body.Len() > 1000 || broken {
			return false
		}
		broken = true
		hangUp(w)
		return true
	})
	var got bytes.Buffer
	if err := e.client(t).Blob(t.Context(), "e-1", contract.Blob{Number: 7, SHA256: sha, Bytes: int64(len(content))}, &got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), content) {
		t.Error("not the same bytes")
	}
	offsets := map[string]int{}
	for _, r := range e.all() {
		query, _ := url.ParseQuery(r.query)
		offsets[query.Get("offset")]++
	}
	if offsets["0"] != 1 {
		t.Errorf("parts asked for by offset: %v", offsets)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, http.ErrBodyNotAllowed }

func TestBlobReportsOfAFullDisk(t *testing.T) {
	e, sha := blobs(t, []byte("hello"))
	if err := e.client(t).Blob(t.Context(), "e-1", contract.Blob{Number: 7, SHA256: sha, Bytes: 5}, fullDisk{}); err == nil || refusal(err) != nil {
		t.Errorf("error %v", err)
	}
}
