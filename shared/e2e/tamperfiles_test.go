package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

func isContent(m message) bool { return m.method == http.MethodGet && m.path == contract.PathContent }

func isPut(m message) bool {
	return m.method == http.MethodPut && strings.HasPrefix(m.path, contract.PathUploads)
}

// fileBytes is the size of the files: some records, and a shorter one at the end.
const fileBytes = 5*(recordBytes-17) + 1000

// fileChanges are what can be done to a message with a part of that size.
func fileChanges() map[string]func(message) message {
	all := changes()
	for what := range recordChanges(make([]byte, sealedHead+fileBytes)) {
		all[what] = func(m message) message {
			if len(m.body) > sealedHead+2*recordBytes { // else it is what was missing after an earlier change
				if body, ok := recordChanges(m.body)[what]; ok {
					m.body = body
				}
			}
			return m
		}
	}
	return all
}

// mayEnd reports whether a transfer can succeed although all parts are changed so: the
// records before the change are proven, and the next part continues after them.
func mayEnd(what string) bool {
	return what == "a byte appended" || what == "the body twice" || strings.HasPrefix(what, "cut ") || strings.HasSuffix(what, " repeated")
}

func TestAChangedPartOfADownloadIsNotWritten(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	u := newTunnel(t, "30s")
	sum := bigFile(t, filepath.Join(u.vm.Config.Dir, "file.bin"), fileBytes)
	download := func(name string) map[string]any {
		return map[string]any{"remote_path": "file.bin", "local_filename": name}
	}
	want(t, call(t, u.host, "download_from_colab", download("first.bin")), map[string]any{"success": true})
	old, ok := u.before(isContent)
	if !ok {
		t.Fatal("no part was seen")
	}
	all := fileChanges()
	all["an old part"] = func(message) message { return old.answer }
	all["the body of an old part"] = func(m message) message { m.body = old.answer.body; return m }
	all["an unsealed part"] = func(m message) message { m.body = make([]byte, fileBytes); return m }
	for what, change := range all {
		for _, always := range []bool{false, true} {
			name := strings.ReplaceAll(fmt.Sprintf("%s %v.bin", what, always), ":", "")
			var met atomic.Bool
			a := u.during(what, isContent, func(m *middleman, request message) message {
				answer := m.forward(request)
				if met.Swap(true) && !always {
					return answer
				}
				return change(answer)
			}, "download_from_colab", download(name))
			u.whole(what, always, a.IsError, filepath.Join(u.dir, "saved", name), sum)
			if a.IsError && a.Error() == "" {
				t.Errorf("%s: %s", what, a.Text)
			}
			got := call(t, u.host, "download_from_colab", download("again "+name))
			want(t, got, map[string]any{"success": true, "sha256": sum})
		}
	}
}

// whole checks that path has the whole file or, after an error, nothing.
func (u *tunnel) whole(what string, always, failed bool, path, sum string) {
	u.t.Helper()
	if always && !failed && !mayEnd(what) {
		u.t.Errorf("%s, in all parts: the call succeeded", what)
	}
	_, err := os.Stat(path)
	switch {
	case failed && !os.IsNotExist(err):
		u.t.Errorf("%s: the call failed, and %s exists: %v", what, path, err)
	case !failed && err != nil:
		u.t.Errorf("%s: the call succeeded: %v", what, err)
	case !failed && fileDigest(u.t, path) != sum:
		u.t.Errorf("%s: %s has another content", what, path)
	}
}

func TestAChangedPartOfAnUploadIsNotWritten(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	u := newTunnel(t, "30s")
	local := filepath.Join(u.dir, "file.bin")
	sum := bigFile(t, local, fileBytes)
	upload := func(name string) map[string]any {
		return map[string]any{"local_path": local, "remote_path": name}
	}
	want(t, call(t, u.host, "upload_to_colab", upload("first.bin")), map[string]any{"success": true})
	old, ok := u.before(isPut)
	if !ok {
		t.Fatal("no part was seen")
	}
	all := fileChanges()
	maps.Copy(all, map[string]func(message) message{
		"the body of an old part":   func(m message) message { m.body = old.request.body; return m },
		"the query of an old part":  func(m message) message { m.query = old.request.query; return m },
		"the upload of an old part": func(m message) message { m.path = old.request.path; return m },
		"no query":                  func(m message) message { m.query = ""; return m },
		"an unsealed part":          func(m message) message { m.body = make([]byte, fileBytes); return m },
	})
	for what, change := range all {
		for _, always := range []bool{false, true} {
			name := strings.ReplaceAll(fmt.Sprintf("%s %v.bin", what, always), ":", "")
			var met atomic.Bool
			a := u.during(what, isPut, func(m *middleman, request message) message {
				if !met.Swap(true) || always {
					request = change(request)
				}
				return m.forward(request)
			}, "upload_to_colab", upload(name))
			u.whole(what, always, a.IsError, filepath.Join(u.vm.Config.Dir, name), sum)
			want(t, call(t, u.host, "upload_to_colab", upload("again "+name)), map[string]any{"success": true, "sha256": sum})
			if got := fileDigest(t, filepath.Join(u.vm.Config.Dir, "again "+name)); got != sum {
				t.Errorf("%s: on the VM the SHA-256 is %s, want %s", what, got, sum)
			}
		}
	}
}
