package tools

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestLocalPathsThatCannotBeAreRefusedAsSuch(t *testing.T) {
	h, vm, dir := serveVM(t, 10*time.Second)
	vm.Put("a.bin", []byte("a"))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(what, tool string, args map[string]any) {
		t.Helper()
		if p := decode[struct{ Error *Problem }](t, h.call(tool, args).Structured).Error; p == nil || p.Code != codeBadRequest || p.Hint == "" {
			t.Errorf("%s: %+v", what, p)
		}
	}
	refused("a NUL", "upload_to_colab", map[string]any{"local_path": "a\x00b"})
	must(os.WriteFile(dir, nil, 0o600))
	refused("LOCAL_SAVE_DIR is a file", "download_from_colab", map[string]any{"remote_path": "a.bin"})
	must(os.Remove(dir))
	must(os.Symlink("gone", dir))
	refused("LOCAL_SAVE_DIR is a link to nothing", "download_from_colab", map[string]any{"remote_path": "a.bin"})
}

func TestALocalPathInAnAnswerSaysAllItsBytes(t *testing.T) {
	for path, want := range map[string]string{
		"/home/ü/a b": "/home/ü/a b", `/home/\xff`: `/home/\xff`, "/home/a\xff": `/home/a\xff`,
	} {
		if got := shownPath(filepath.Clean(path)); got != want {
			t.Errorf("%q is shown as %q, want %q", path, got, want)
		}
	}
	h, vm, dir := serveVM(t, 10*time.Second)
	vm.Put(`bad\xff`, []byte("a"))
	got := decode[Download](t, h.call("download_from_colab", map[string]any{"remote_path": `bad\xff`}).Structured)
	if _, err := os.Stat(filepath.Join(dir, "bad\xff")); err != nil || got.LocalPath != filepath.Join(dir, `bad\xff`) {
		t.Errorf("%+v, %v", got, err)
	}
}
