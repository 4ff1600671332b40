package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"colabrelay/shared/contract"
)

func TestAFileIsUploadedInPartsInAnyOrder(t *testing.T) {
	s := newFileStand(t)
	content := noise(100_000)
	u := s.start("made/on the way/a.bin", content)
	if u.Status != contract.UploadReceiving || u.ReceivedBytes != 0 {
		t.Fatalf("upload is %+v", u)
	}
	s.put(u.UploadID, 60_000, content[60_000:])
	half := u
	half.ReceivedBytes, half.Missing = 40_000, []contract.Range{{Length: 60_000}}
	if diff := cmp.Diff(half, s.commit(u.UploadID, content)); diff != "" {
		t.Errorf("a commit of the half (-want +got):\n%s", diff)
	}
	if again := s.start("made/on the way/a.bin", content); again.UploadID != u.UploadID || again.ReceivedBytes != 40_000 {
		t.Errorf("restarted it is %+v", again)
	}
	if after := into[contract.Upload](s.stand, s.put(u.UploadID, 0, content[:60_000])); after.ReceivedBytes != 100_000 {
		t.Errorf("upload is %+v", after)
	}
	s.call("POST", contract.PathUploads+"/"+u.UploadID+"/commit", nil).want(t, http.StatusBadRequest, contract.CodeBadRequest)
	for _, digest := range []string{"", strings.ToUpper(sum(content))} {
		s.call("POST", contract.PathUploads+"/"+u.UploadID+"/commit", contract.UploadCommit{SHA256: digest}).
			want(t, http.StatusBadRequest, contract.CodeBadRequest)
	}
	done := s.commit(u.UploadID, content)
	if done.SHA256 != sum(content) {
		t.Errorf("SHA-256 is %q", done.SHA256)
	}
	s.wantFile(done, content)
	if again := s.commit(u.UploadID, content); again.Status != contract.UploadCommitted || again.Path != done.Path {
		t.Errorf("committed again it is %+v", again)
	}
}

func TestTheSizeOfAPartIsChecked(t *testing.T) {
	s := newFileStand(t)
	content := make([]byte, contract.MaxFilePart+1)
	u := s.start("a", content)
	for _, chunked := range []bool{false, true} {
		ask := func(body []byte) reply {
			req := s.request("PUT", putPath(u.UploadID, 0, len(body)), nil)
			x := s.sign(req, body, time.Now())
			if chunked {
				req.ContentLength = -1
			}
			return s.opened(req, x)
		}
		if e := ask(content).want(t, http.StatusRequestEntityTooLarge, contract.CodeTooLarge); !strings.Contains(e.Hint, "parts") {
			t.Errorf("chunked %v: hint is %q", chunked, e.Hint)
		}
		if got := into[contract.Upload](s.stand, ask(content[1:])); got.ReceivedBytes != contract.MaxFilePart {
			t.Errorf("chunked %v: at the bound it is %+v", chunked, got)
		}
	}
	s.put(u.UploadID, contract.MaxFilePart, content[:1])
	s.wantFile(s.commit(u.UploadID, content), content)
}

func TestUnknownUploadsAreNotFound(t *testing.T) {
	s := newFileStand(t)
	for _, id := range []string{strings.Repeat("0", 64), "nothing", "a.b", "..%2f..%2fkey", strings.Repeat("a", 65)} {
		path := contract.PathUploads + "/" + id
		s.call("GET", path, nil).want(t, http.StatusNotFound, contract.CodeNotFound)
		s.call("PUT", path+"?offset=0", nil).want(t, http.StatusNotFound, contract.CodeNotFound)
		s.call("POST", path+"/commit", contract.UploadCommit{SHA256: sum(nil)}).want(t, http.StatusNotFound, contract.CodeNotFound)
	}
}

// The file changed while it was sent: what arrived is dropped, and the same start begins again.
func TestACommitWithTheDigestOfAnotherFileIsRefused(t *testing.T) {
	s := newFileStand(t)
	content := noise(1000)
	u := s.start("a", content)
	s.put(u.UploadID, 0, content)
	s.call("POST", contract.PathUploads+"/"+u.UploadID+"/commit?wait_seconds=10", contract.UploadCommit{SHA256: sum(nil)}).
		want(t, http.StatusPreconditionFailed, contract.CodeChanged)
	if again := s.start("a", content); again.UploadID != u.UploadID || again.ReceivedBytes != 0 {
		t.Errorf("started again it is %+v", again)
	}
	s.put(u.UploadID, 0, content)
	s.wantFile(s.commit(u.UploadID, content), content)
}
