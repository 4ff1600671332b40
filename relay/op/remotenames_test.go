package op

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// oddNames returns names of files on the VM, some of each kind.
func oddNames() map[string]bool {
	pieces := []string{
		"a", "b", "x", "20", "e2", "80", "8b", " ", ".", `\`, `\x`, `"`, "'", "“", "”", "…", "\n", "\t", "\r", "\x1b[2J", "\a", "\x7f", "\u0085", "\u202e", "\u2066",
		"\u200b", "\u200d", "\ufe0f", "\ufeff", "\u00ad", "\u00a0", "\u2028", "\U000e0041", "\ue000", "\u0378", "\xff", "\xe2", "\x80", "ü", "日", "👁", "می", "(", "`",
	}
	names := map[string]bool{
		"ab": true, "a\u200bb": true, `a\xe2\x80\x8bb`: true, `"a\u200bb"`: true, "“ab”": true, "a b": true, "a\u00a0b": true, "a b ": true, " a b": true, "a\\x20b": true,
	}
	for i, piece := range pieces {
		names["n"+piece+"n"] = true
		names["r"+piece+pieces[(i*7+3)%len(pieces)]] = true
	}
	return names
}

// A name with characters that are not shown must not look like another name, whose file a tool
// would then fetch or replace.
func TestEveryListedNameMeansItsFileAlone(t *testing.T) {
	h, vm, dir := serveVM(t)
	names := oddNames()
	for name := range names {
		vm.Put("data/"+contract.EscapeName(name), []byte(name))
	}
	got := h.call("list_colab_files", map[string]any{"path": "data"})
	text := got.Content[0].Text
	if plain.Text(text) != text {
		t.Errorf("the answer is not plain: %q", text)
	}
	listed := decode[Files](t, got.Structured).Files
	if len(listed) != len(names) {
		t.Errorf("%d files are listed, want %d", len(listed), len(names))
	}
	seen := map[string]bool{}
	for _, f := range listed {
		if !strings.Contains(text, "  "+f.Name+"\n") || f.Path != "/content/data/"+f.Name || seen[f.Name] {
			t.Errorf("%q at %q is not in the text, or twice in the list", f.Name, f.Path)
		}
		seen[f.Name] = true
		down := decode[Download](t, h.call("download_from_colab", map[string]any{"remote_path": f.Path, "local_filename": "got", "overwrite": true}).Structured)
		bytes, err := os.ReadFile(filepath.Join(dir, "got"))
		content := string(bytes)
		if err != nil || down.Status != moveDone || !names[content] || contract.UnescapeName(f.Name) != content {
			t.Errorf("%q leads to the file %q: %+v", f.Path, content, down)
		}
		names[content] = false // by no other name
		write(t, filepath.Join(dir, "sent"), []byte("new "+f.Name))
		up := decode[Upload](t, h.call("upload_to_colab", map[string]any{"local_path": "sent", "remote_path": f.Path, "overwrite": true}).Structured)
		if now, _ := vm.File("data/" + contract.EscapeName(content)); up.RemotePath != f.Path || string(now) != "new "+f.Name {
			t.Errorf("an upload to %q went to %q, and the file has %q", f.Path, up.RemotePath, now)
		}
	}
}

func TestTheNextCallNamesWhatItMeans(t *testing.T) {
	for name := range oddNames() {
		name = strings.ToValidUTF8(name, "")
		value := strings.TrimSuffix(strings.TrimPrefix(command("tool", "path", name), "tool(path="), ")")
		var back string
		if err := json.Unmarshal([]byte(value), &back); err != nil || back != name || plain.Text(value) != value {
			t.Errorf("%q is written %q, which means %q", name, value, back)
		}
	}
}
