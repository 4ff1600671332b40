package transfer

import (
	"os"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// A kill may have cut the last line. The complete lines before it count, the rest is removed, and
// later records can be read.
func TestADamagedRecordCountsUpToTheDamage(t *testing.T) {
	when := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	entry := func(name string) remoteEntry {
		return remoteEntry{File: contract.File{Path: "/content/" + name, SizeBytes: 1, Modified: when}}
	}
	root, err := openLocal(t.TempDir())
	must(t, err)
	defer root.Close()
	for _, file := range []string{"a", "b"} {
		must(t, root.WriteFile(file, []byte("x"), 0o600))
	}
	m, err := openCompletedFiles(besides(root), "folder", "/content")
	must(t, err)
	held := func(file string) bool {
		has, ok := m.find(root, entry(file), nil)
		return ok && has.Local == file
	}
	m.add(root, contract.FileStat{File: entry("a").File, ETag: "e"}, "a")
	_ = m.close(besides(root), errEnough)
	text, err := root.ReadFile(m.name)
	must(t, err)
	must(t, root.WriteFile(m.name, append(text, text[:len(text)/2]...), 0o600))

	m, err = openCompletedFiles(besides(root), "folder", "/content")
	must(t, err)
	if a, b := held("a"), held("b"); !a || b {
		t.Errorf("a is held: %v, b: %v", a, b)
	}
	m.add(root, contract.FileStat{File: entry("b").File}, "b")
	_ = m.close(besides(root), errEnough)
	m, err = openCompletedFiles(besides(root), "folder", "/content")
	must(t, err)
	if !held("a") || !held("b") {
		t.Error("a record written after the damage is lost")
	}
	for grew, e := range map[bool]remoteEntry{true: entry("a"), false: entry("a")} {
		e.SizeBytes++
		if has, ok := m.find(root, e, func(file completedFile) bool { return grew && file.ETag == "e" }); ok != grew || has.Size != 1 {
			t.Errorf("a longer file, grown %v: %+v, %v", grew, has, ok)
		}
	}
	must(t, os.Chtimes(root.Name()+"/a", when, when))
	if held("a") {
		t.Error("a file that was touched counts as done")
	}
	_ = m.close(besides(root), nil)
	wantNames(t, root.Name(), "a", "b")
}
