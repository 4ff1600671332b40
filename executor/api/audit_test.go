package api

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/executor/audit"
	"colabrelay/shared/contract"
)

// audited gives the stand an audit log. entries ends the server, which may still record its last
// answer, then the log, and returns its lines.
func (s *stand) audited() (entries func() []map[string]any) {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "audit.log")
	l, err := audit.Open(audit.Config{Path: path, KeyID: s.secret.KeyID(), Log: s.api.Log})
	must(s.t, err)
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()
	s.api.Audit = l
	return func() (all []map[string]any) {
		s.server.Close()
		end()
		<-ended
		raw, err := os.ReadFile(path)
		must(s.t, err)
		for _, line := range lines(string(raw)) {
			var entry map[string]any
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				s.t.Fatalf("line %q: %v", line, err)
			}
			all = append(all, entry)
		}
		return all[1 : len(all)-1] // without start and stop
	}
}

func TestEachSignedRequestIsRecordedAndNoOther(t *testing.T) {
	s := standWith(t, echo)
	entries := s.audited()
	s.do(s.request("GET", "/unsigned", nil))
	s.do(s.request("GET", contract.PathHealth, nil))
	forged := s.request("GET", "/forged", nil)
	s.sign(forged, nil, time.Now())
	forged.Header.Set("Signature", "sig1=:"+strings.Repeat("A", 43)+"=:")
	s.do(forged)

	ask := func(method, path string, body []byte, created time.Time) *http.Request {
		req := s.request(method, path, body)
		req.Header.Set(addrHeader, "203.0.113.7")
		s.signedAt(req, body, created)
		return req
	}
	ask("POST", "/echo?path=MARKER", []byte("MARKER"), time.Now())
	ask("GET", "/late", nil, time.Now().Add(-time.Hour))
	replayed := s.request("GET", "/replayed", nil)
	s.sign(replayed, nil, time.Now())
	s.do(replayed)
	s.do(replayed)
	changed := s.request("POST", "/changed", []byte("x"))
	s.sign(changed, []byte("x"), time.Now())
	changed.Body, changed.ContentLength = http.NoBody, 0
	s.do(changed)
	want := []struct {
		path, address, failure string
		status                 float64
	}{
		{"/echo", "203.0.113.7", "", 200},
		{"/late", "203.0.113.7", "clock_skew", 401},
		{"/replayed", "127.0.0.1", "", 200},
		{"/replayed", "127.0.0.1", "replayed", 401},
		{"/changed", "127.0.0.1", "bad_request", 400},
	}
	got := entries()
	if len(got) != len(want) {
		t.Fatalf("recorded %v", got)
	}
	for i, w := range want {
		e := got[i]
		if failure, _ := e["error"].(string); e["path"] != w.path || e["address"] != w.address || e["status"] != w.status || failure != w.failure {
			t.Errorf("%v, want %+v", e, w)
		}
		if e["key_id"] != s.secret.KeyID() || e["request_id"] == nil || e["caller"] == nil || e["bytes_sent"] == nil && e["status"] != 200. {
			t.Errorf("%v is not whole", e)
		}
	}
	if all, _ := json.Marshal(got); strings.Contains(string(all), "MARKER") {
		t.Errorf("the log holds query or body: %s", all)
	}
	if got[0]["bytes_received"] == nil {
		t.Errorf("%v has no size of its body", got[0])
	}
}

// The holder of a key may be hostile to the readers of the log.
func TestWhateverAKeyHolderSendsIsOneBoundedLine(t *testing.T) {
	s := standWith(t, echo)
	entries := s.audited()
	paths := []string{"/%0A%7B%22event%22:%22forged%22%7D", "/%1b%5B2J", "/%C2%9B31m", "/%E2%80%AE", "/%FF%00", "/" + strings.Repeat("x", 8000)}
	for _, path := range paths {
		for _, method := range []string{"GET", "POST", strings.Repeat("X", 1000)} {
			s.signed(s.request(method, path, nil), nil)
		}
	}
	got := entries()
	if len(got) != 3*len(paths) {
		t.Errorf("%d lines for %d requests", len(got), 3*len(paths))
	}
	for _, e := range got {
		if line, _ := json.Marshal(e); len(line) > 800 {
			t.Errorf("a line of %d bytes: %s", len(line), line)
		}
	}
}
