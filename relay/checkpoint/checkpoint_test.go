package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoadReturnsWhatWasSaved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "when missing")
	for _, name := range []string{"train", "Train", "a/b", "../../etc/passwd", "", "con", "имя", strings.Repeat("x", 300)} {
		path, err := Save(dir, name, map[string]string{"is": name})
		if err != nil {
			t.Fatalf("saving %q: %v", name, err)
		}
		if filepath.Dir(path) != dir {
			t.Errorf("%q went to %q, outside its folder", name, path)
		}
	}
	for _, name := range []string{"train", "Train", "a/b", "../../etc/passwd", "", "con", "имя"} {
		var got map[string]string
		e, err := Load(dir, name, &got)
		if err != nil || got["is"] != name || e.Operation != name || e.Timestamp.IsZero() {
			t.Errorf("loading %q: %v %v %v", name, e, got, err)
		}
	}
}

func TestSavedFileIsPrivateAndReplacesAWiderOne(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(Path(dir, "n"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	path, err := Save(dir, "n", 1)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(left) != 1 {
		t.Errorf("temporary files left: %v", left)
	}
}

func TestLoadDistinguishesMissingFromDamaged(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(dir, "none", nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("missing: %v", err)
	}
	for _, body := range []string{"", "{", "null", `{"operation":"other"}`} {
		if err := os.WriteFile(Path(dir, "torn"), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir, "torn", nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%q: %v", body, err)
		}
	}
}

func TestNamesListsCheckpointsByTheirOriginalNames(t *testing.T) {
	dir := t.TempDir()
	if names, err := Names(filepath.Join(dir, "none")); err != nil || names == nil || len(names) != 0 {
		t.Errorf("of no folder: %v %v", names, err)
	}
	for _, name := range []string{"train", "Über/all", "big"} {
		v := any("x")
		if name == "big" {
			v = strings.Repeat("x", 1<<20)
		}
		if _, err := Save(dir, name, v); err != nil {
			t.Fatal(err)
		}
	}
	for file, body := range map[string]string{"torn.json": `{"operation":"to`, "other.json": `{"operation":"train"}`, "list.json": "[1]", "train.json.lock": "", "num.json": `{"operation":5}`} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	names, err := Names(dir)
	if err != nil || strings.Join(names, ",") != "big,train,Über/all" {
		t.Errorf("%q %v", names, err)
	}
}
