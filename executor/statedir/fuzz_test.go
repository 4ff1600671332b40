package statedir

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/google/uuid"

	"colabrelay/shared/memorydir"
)

// FuzzInstance opens a state folder with any instance.json. There is always one valid id, the
// file's own or a new one, which the next start finds again; what was damaged is kept.
func FuzzInstance(f *testing.F) {
	for _, seed := range []string{
		`{"instance_id":"6b0d7f43-5a8e-4f0e-9c32-0d6c1a8f7e11","created_at":"2026-11-22T00:00:00Z"}`,
		`{"instance_id":"6b0d7f43-5a8e-4f0e-9c32-0d6c1a8f7e11","folder_created_at":"2026-11-22T00:00:00Z"}`,
		`{"instance_id":"urn:uuid:6b0d7f43-5a8e-4f0e-9c32-0d6c1a8f7e11"}`, `{"instance_id":"{6b0d7f43-5a8e-4f0e-9c32-0d6c1a8f7e11}"}`,
		`{"instance_id":"../x"}`, `{"instance_id":1}`, `{"created_at":""}`, "null", "[]", "{", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := memorydir.New(t)
		d, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		d.Close()
		if err := os.WriteFile(d.Path(instanceFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if d, err = Open(dir); err != nil {
			t.Fatal(err)
		}
		d.Close()
		id := d.InstanceID()
		if uuid.Validate(id) != nil || d.Damage() == nil && !d.Copied() && !bytes.Contains(text, []byte(id)) && !bytes.ContainsRune(text, '\\') {
			t.Errorf("%q has the id %q, %v", text, id, d.Damage())
		}
		if d.Damage() != nil && !errors.Is(d.Damage(), errDamaged) {
			t.Error(d.Damage())
		}
		entries, err := os.ReadDir(dir)
		if kept := len(entries) - 2; err != nil || kept != 0 && d.Damage() == nil || kept != 1 && d.Damage() != nil {
			t.Errorf("%q are left, %v", entries, err)
		}
		again, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		again.Close()
		if again.InstanceID() != id || again.Damage() != nil || again.Copied() {
			t.Errorf("the id was %q and is %q, %v", id, again.InstanceID(), again.Damage())
		}
	})
}
