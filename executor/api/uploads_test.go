package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

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
