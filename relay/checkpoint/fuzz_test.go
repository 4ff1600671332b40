package checkpoint

import (
	"encoding/json"
	"errors"
	"os"
	"testing"
)

// FuzzLoad reads any file as a checkpoint. It is one of that name, or damaged; never a mixture.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		`{"operation":"n","timestamp":"2026-11-22T00:00:00Z","data":{"a":1}}`, `{"operation":"other","data":null}`,
		`{"timestamp":1,"operation":"n"}`, `{"operation":"n","operation":"m","data":[]}`, `{"Operation":"n","DATA":"x"}`, `{"operation":"n"}{`, "", "null",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(Path(dir, "n"), body, 0o600); err != nil {
			t.Fatal(err)
		}
		var data map[string]any
		e, err := Load(dir, "n", &data)
		if err != nil && !errors.Is(err, ErrCorrupt) || err == nil && e.Operation != "n" {
			t.Fatalf("%+v, %v", e, err)
		}
		if names, err := Names(dir); err != nil || len(names) > 1 || len(names) == 1 && names[0] != "n" {
			t.Errorf("%q, %v", names, err)
		}
		if err != nil {
			return
		}
		if _, err := Save(dir, "n", data); err != nil {
			t.Fatal(err)
		}
		var again map[string]any
		if _, err := Load(dir, "n", &again); err != nil || !sameJSON(data, again) {
			t.Errorf("%v became %v, %v", data, again, err)
		}
	})
}

func sameJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}
