package fakevm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"colabrelay/shared/contract"
)

// upload is an upload that was started.
type upload struct {
	start contract.UploadStart
	bytes []byte
	came  []contract.Range
	path  string // after the commit
	sha   string
}

func (v *VM) startUpload(body []byte) (contract.Upload, error) {
	var s contract.UploadStart
	if err := json.Unmarshal(body, &s); err != nil {
		return contract.Upload{}, &contract.Error{Code: contract.CodeBadRequest, Message: err.Error()}
	}
	if strings.HasSuffix(s.Path, "/") {
		return contract.Upload{Status: contract.UploadCommitted, Path: at(s.Path), Missing: []contract.Range{}}, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	id := Digest(fmt.Appendf(nil, "%q %d %q %v%s", s.Path, s.SizeBytes, s.Version, s.Overwrite, s.Replaces))[:32]
	u := v.uploads[id]
	if u == nil || u.path != "" && Digest(v.files[u.path]) != u.sha {
		u = &upload{start: s, bytes: make([]byte, s.SizeBytes)}
		v.uploads[id] = u
	}
	return u.state(id), nil
}

// answerUpload answers a request for one upload.
func (v *VM) answerUpload(r *http.Request, body []byte) (any, error) {
	rest, _ := strings.CutPrefix(r.URL.Path, contract.PathUploads+"/")
	id, action, _ := strings.Cut(rest, "/")
	v.mu.Lock()
	defer v.mu.Unlock()
	u := v.uploads[id]
	if u == nil {
		return nil, &contract.Error{Code: contract.CodeNotFound, Message: fmt.Sprintf("no route %s %s", r.Method, r.URL.Path)}
	}
	switch r.Method + " " + action {
	case "PUT ":
		offset, err := strconv.Atoi(r.URL.Query().Get("offset"))
		if err != nil || offset < 0 || offset+len(body) > len(u.bytes) {
			return nil, &contract.Error{Code: contract.CodeBadRequest, Message: "offset"}
		}
		copy(u.bytes[offset:], body)
		u.came = append(u.came, contract.Range{Offset: int64(offset), Length: int64(len(body))})
	case "POST commit":
		var c contract.UploadCommit
		if err := json.Unmarshal(body, &c); err != nil {
			return nil, badRequest(err)
		}
		if len(u.missing()) == 0 && Digest(u.bytes) != c.SHA256 {
			delete(v.uploads, id)
			return nil, &contract.Error{Code: contract.CodeChanged, Message: "the SHA-256 differs"}
		}
		if u.path == "" && len(u.missing()) == 0 {
			placed, err := v.placeLocked(u.start, c.SHA256)
			if err != nil {
				return nil, err
			}
			u.path, u.sha = placed, c.SHA256
			v.files[u.path] = u.bytes
		}
	}
	return u.state(id), nil
}

// placeLocked returns the path for an uploaded file. An existing different file is kept
// unless the upload overwrites it or may replace it.
func (v *VM) placeLocked(start contract.UploadStart, sha string) (string, error) {
	name := at(start.Path)
	if there, taken := v.files[name]; taken && !start.Overwrite && Digest(there) != sha && Digest(there) != start.Replaces {
		return "", &contract.Error{Code: contract.CodeConflict, Message: "a different file is there"}
	}
	return name, nil
}

// missing returns the ranges that have not been received, in order.
func (u *upload) missing() []contract.Range {
	slices.SortFunc(u.came, func(a, b contract.Range) int { return cmp.Compare(a.Offset, b.Offset) })
	all, at := []contract.Range{}, int64(0)
	for _, r := range append(slices.Clip(u.came), contract.Range{Offset: u.start.SizeBytes}) {
		if r.Offset > at {
			all = append(all, contract.Range{Offset: at, Length: r.Offset - at})
		}
		at = max(at, r.Offset+r.Length)
	}
	return all
}

func (u *upload) state(id string) contract.Upload {
	s := contract.Upload{
		UploadID: id, Status: contract.UploadReceiving, Path: u.start.Path,
		SizeBytes: u.start.SizeBytes, SHA256: u.sha, ReceivedBytes: u.start.SizeBytes, Missing: u.missing(),
	}
	for _, r := range s.Missing {
		s.ReceivedBytes -= r.Length
	}
	if u.path != "" {
		s.Status, s.Path = contract.UploadCommitted, u.path
	}
	return s
}
