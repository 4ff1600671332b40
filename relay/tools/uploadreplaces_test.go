package tools

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/e2e/fakevm"
	"colabrelay/shared/tier"
)

func TestAnUploadIsCheckedAndReplacesOnlyWhatItPutThere(t *testing.T) {
	tier.Long(t)
	h, vm, dir := serveVM(t, 10*time.Second)
	first, second := randomBytes(large), []byte("another")
	for i, c := range []struct {
		there   string // what code on the VM writes to the target first
		content []byte
		args    map[string]any
		status  string
		path    string
	}{
		{"", first, map[string]any{}, "done", "/content/data.csv"},
		{"", first, map[string]any{}, "unchanged", "/content/data.csv"},
		{"", second, map[string]any{}, "done", "/content/data.csv"},
		{"theirs", first, map[string]any{}, "failed", "/content/data.csv"},
		{"", first, map[string]any{"overwrite": true}, "done", "/content/data.csv"},
		{"", second, map[string]any{}, "done", "/content/data.csv"},
		{"", second, map[string]any{"remote_path": "in/x.csv"}, "done", "/content/in/x.csv"},
		{"", second, map[string]any{"remote_path": "/content/in/"}, "done", "/content/in/data.csv"},
		{"theirs", second, map[string]any{"remote_path": "in/y.csv"}, "failed", "/content/in/y.csv"},
	} {
		if c.there != "" {
			vm.Put(strings.TrimPrefix(c.path, "/content/"), []byte(c.there))
		}
		c.args["local_path"] = write(t, filepath.Join(dir, "data.csv"), c.content)
		r := h.call("upload_to_colab", c.args)
		want := c.content
		if c.status == "failed" {
			want = []byte(c.there)
			if o := r.outcome(t); o.Error == nil || o.Error.Code != "conflict" || !strings.Contains(o.Error.Message, "already on the VM with other content: “"+c.path+"”") || strings.Count(r.Content[0].Text, c.path) > 1 || !strings.Contains(o.Error.Hint, "overwrite=true") {
				t.Errorf("case %d: %s", i, r.Structured)
			}
		} else {
			got := decode[Upload](t, r.Structured)
			sameFields(t, Moved{Status: c.status, SHA256: fakevm.Digest(c.content), SizeBytes: int64(len(c.content))}, got.Moved, "Status", "SHA256", "SizeBytes")
			if got.RemotePath != c.path {
				t.Errorf("case %d: %+v", i, got)
			}
		}
		if there, _ := vm.File(c.path); !bytes.Equal(there, want) {
			t.Errorf("case %d: %s holds %d bytes", i, c.path, len(there))
		}
	}
}
