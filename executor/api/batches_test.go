package api

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
)

func (s fileStand) putBatch(files []byte, m contract.Manifest) reply {
	s.t.Helper()
	body, err := contract.AppendIndex(files, m)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.signed(s.request("POST", contract.PathUploadBatch, body), body)
}

func TestABatchAnswersAboutEachFile(t *testing.T) {
	s := newFileStand(t)
	one, two := []byte("one"), []byte("number two")
	m := contract.Manifest{Path: s.work, Files: []contract.ManifestFile{
		{Name: "one", SizeBytes: 3, SHA256: sum(one)},
		{Name: "../" + strings.Repeat("x", 4000), SizeBytes: 3, SHA256: sum(one)},
		{Name: "new/two", SizeBytes: 10, SHA256: sum(two)},
	}}
	got := into[contract.BatchAnswer](s.stand, s.putBatch([]byte("oneonenumber two"), m))
	if len(got.Files) != 3 {
		t.Fatalf("%+v", got)
	}
	if e := got.Files[1].Error; e == nil || e.Code != contract.CodeForbiddenPath || e.Hint == "" || e.RequestID == "" || len(e.Message) > maxFileError {
		t.Errorf("a path that leads out: %+v", e)
	}
	for i, want := range map[int]string{0: "one", 2: "new/two"} {
		at := filepath.Join(s.work, want)
		if f := got.Files[i]; f.Error != nil || f.Path != at || f.ETag != s.stat(at, "").ETag {
			t.Errorf("%q: %+v", want, f)
		}
	}
	if text, err := os.ReadFile(filepath.Join(s.work, "new/two")); err != nil || string(text) != string(two) {
		t.Errorf("%q, %v", text, err)
	}
	compared := into[contract.Comparison](s.stand, s.call("POST", contract.PathCompare, m))
	var states []contract.CompareState
	for _, f := range compared.Files {
		states = append(states, f.State)
	}
	if diff := cmp.Diff([]contract.CompareState{contract.StateSame, contract.StateAbsent, contract.StateSame}, states); diff != "" {
		t.Errorf("compared: %+v", compared)
	}
}

func TestErrorsAboutManyFilesAreShort(t *testing.T) {
	s := newStand(t)
	for over := range 2 {
		message := strings.Repeat("e", maxFileError+over)
		e := s.api.fileError(new(http.Request), badRequest("%s", message))
		if len(e.Message) > maxFileError || (e.Message == message) != (over == 0) {
			t.Errorf("%d past the bound: a message of %d bytes", over, len(e.Message))
		}
	}
}

func TestABodyThatIsNotABatchIsRefused(t *testing.T) {
	s := newFileStand(t)
	for name, body := range map[string]string{
		"nothing": "", "three bytes": "\x00\x00\x00", "an index longer than the body": "\x00\x00\x00\x05", "a huge index": "{}\xff\xff\xff\xff",
		"no JSON": "x\x00\x00\x00\x01", "wrong JSON": "[]\x00\x00\x00\x02", "not UTF-8": "\"\xff\"\x00\x00\x00\x03",
		"bytes of no file": `oops{"path":".","files":[]}` + "\x00\x00\x00\x17",
	} {
		t.Run(name, func(t *testing.T) {
			s.signed(s.request("POST", contract.PathUploadBatch, []byte(body)), []byte(body)).want(t, http.StatusBadRequest, contract.CodeBadRequest)
		})
	}
	tooMany := contract.Manifest{Path: s.work, Files: make([]contract.ManifestFile, contract.MaxManifestFiles+1)}
	s.call("POST", contract.PathCompare, tooMany).want(t, http.StatusBadRequest, contract.CodeBadRequest)
}

// The beginning of a cut batch is not verified and has no index.
func TestABatchThatWasCutChangesNothing(t *testing.T) {
	s := newFileStand(t)
	body, err := contract.AppendIndex([]byte("one"), contract.Manifest{Path: s.work, Files: []contract.ManifestFile{{Name: "one", SizeBytes: 3, SHA256: sum([]byte("one"))}}})
	if err != nil {
		t.Fatal(err)
	}
	longer := append([]byte(nil), append(body, body...)...)
	req := s.request("POST", contract.PathUploadBatch, body)
	s.signed(req, longer).want(t, http.StatusBadRequest, contract.CodeBadRequest)
	if _, err := os.Stat(filepath.Join(s.work, "one")); err == nil {
		t.Error("the file is there")
	}
}
