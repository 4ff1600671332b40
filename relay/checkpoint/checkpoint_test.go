package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
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
	for _, name := range []string{"train", "Über/all"} {
		if _, err := Save(dir, name, "x"); err != nil {
			t.Fatal(err)
		}
	}
	for file, body := range map[string]string{"torn.json": `{"operation":"to`, "other.json": `{"operation":"train"}`, "list.json": "[1]", "train.json.lock": "", "num.json": `{"operation":5}`} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	names, err := Names(dir)
	if err != nil || strings.Join(names, ",") != "train,Über/all" {
		t.Errorf("%q %v", names, err)
	}
}

func TestACheckpointHasOneLock(t *testing.T) { synctest.Test(t, hasOneLock) }

func hasOneLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made when missing")
	unlock, err := Lock(dir, "Mine")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(dir, "Mine"); !errors.Is(err, ErrBusy) {
		t.Errorf("a second lock: %v, want ErrBusy", err)
	}
	other, err := Lock(dir, "mine") // a different name, also where file names ignore case
	if err != nil {
		t.Fatal(err)
	}
	other()
	if names, err := Names(dir); err != nil || len(names) != 0 {
		t.Errorf("a lock counts as a checkpoint: %q, %v", names, err)
	}
	unlock()
	again, err := Lock(dir, "Mine")
	if err != nil {
		t.Fatalf("after the unlock: %v", err)
	}
	again()
}
