package checkpoint

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/tier"
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

func TestNamesThatDifferOnlyInCaseHaveDifferentFiles(t *testing.T) {
	if strings.EqualFold(Path("d", "train"), Path("d", "Train")) {
		t.Error("Train overwrites train where file names ignore case")
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

func TestSaveRefusesTooMuchDataAndKeepsTheOldFile(t *testing.T) {
	tier.Long(t)
	dir := t.TempDir()
	if _, err := Save(dir, "n", "old"); err != nil {
		t.Fatal(err)
	}
	if _, err := Save(dir, "n", strings.Repeat("x", MaxBytes)); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("over the bound: %v", err)
	}
	var got string
	if _, err := Load(dir, "n", &got); err != nil || got != "old" {
		t.Errorf("%q %v", got, err)
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

// An indented list of numbers is mostly white space: 12 bytes per item.
func TestLargeCheckpointsAreNotIndented(t *testing.T) {
	tier.Long(t)
	dir := t.TempDir()
	path, err := Save(dir, "n", make([]int, 5<<20))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 11<<20 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	var back []int
	if _, err := Load(dir, "n", &back); err != nil || len(back) != 5<<20 {
		t.Errorf("%d items, %v", len(back), err)
	}
}

// A record keeps its size whatever its texts are, and grows by no white space.
func TestWhatIsSavedStaysAsLargeAsItIs(t *testing.T) {
	dir := t.TempDir()
	deep := strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000)
	for name, c := range map[string]struct {
		data json.RawMessage
		most int
	}{
		"characters of HTML": {json.RawMessage(`"` + strings.Repeat("<>&", 1<<20) + `"`), 3<<20 + 1000},
		"deeply nested":      {json.RawMessage(deep), len(deep) + 1000},
	} {
		path, err := Save(dir, name, c.data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Size() > int64(c.most) {
			t.Errorf("%s: %d bytes, want at most %d, %v", name, info.Size(), c.most, err)
		}
		var got json.RawMessage
		if _, err := Load(dir, name, &got); err != nil || string(got) != string(c.data) {
			t.Errorf("%s: it is read as %.50s, %v", name, got, err)
		}
	}
}
