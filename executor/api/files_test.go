package api

import (
	"net/http"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

func TestTheBoundsOfTransferRequestsAreChecked(t *testing.T) {
	s := newFileStand(t)
	s.write("a", []byte("hello"))
	etag := s.etag("a")
	if res := s.call("GET", contentPath("a", etag, 0, contract.MaxFilePart), nil); string(res.body) != "hello" {
		t.Errorf("a part at the bound: %d %s", res.StatusCode, res.body)
	}
	s.call("GET", contentPath("a", strings.Repeat("x", maxETagLen), 0, 1), nil).want(t, http.StatusPreconditionFailed, contract.CodeChanged)
	if res := s.call("POST", contract.PathUploads, contract.UploadStart{Path: "d", SizeBytes: 1, Version: strings.Repeat("v", contract.MaxUploadVersion)}); res.StatusCode != http.StatusOK {
		t.Errorf("a version at the bound: %d %s", res.StatusCode, res.body)
	}
	id := s.start("b", []byte("hello")).UploadID
	for _, tc := range []struct{ method, path, names string }{
		{"GET", contentPath("a", etag, 0, contract.MaxFilePart+1), "length"},
		{"GET", contentPath("a", etag, -1, 1), "offset"},
		{"GET", contentPath("a", strings.Repeat("x", maxETagLen+1), 0, 1), "etag"},
		{"GET", contract.PathStat + "?path=a&digest=yes", "digest"},
		{"PUT", putPath(id, 0, -1), "length"},
	} {
		e := s.call(tc.method, tc.path, nil).want(t, http.StatusBadRequest, contract.CodeBadRequest)
		if !strings.HasPrefix(e.Message, tc.names) {
			t.Errorf("%s %.80s: message is %q, want it to name %q", tc.method, tc.path, e.Message, tc.names)
		}
	}
	for _, start := range []contract.UploadStart{
		{Path: "c", SizeBytes: -1, Version: "v"},
		{Path: "c", SizeBytes: 1, Version: strings.Repeat("v", contract.MaxUploadVersion+1)},
		{Path: "c", SizeBytes: 1},
	} {
		s.call("POST", contract.PathUploads, start).want(t, http.StatusBadRequest, contract.CodeBadRequest)
	}
}
