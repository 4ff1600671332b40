package pairing

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"colabrelay/shared/memorydir"
)

// FuzzLastSeen reads any file as what was last seen of the runtimes. The next record is stored
// and found whatever the file had, other runtimes' entries stay, and the file stays bounded.
func FuzzLastSeen(f *testing.F) {
	f.Add("a", "b", []byte(`{"b":{"instance_id":"i","kernel_id":"k","since":"2026-11-22T00:00:00Z"}}`))
	f.Add("a", "b", []byte(`{"b":{"since":"9999-12-31T23:59:59Z"},"b":{}}`))
	f.Add("", "\xff", []byte(`{"":{"since":1}}`))
	f.Add("a", "a", []byte("null"))
	f.Add("a", "b", []byte("{"))
	s := Open(memorydir.New(f))
	f.Fuzz(func(t *testing.T, key, other string, text []byte) {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(os.WriteFile(filepath.Join(s.dir, lastSeenName), text, 0o600))
		before, damage := s.readLastSeenLocked()
		want := LastSeen{InstanceID: "i", KernelID: "k", Since: time.Unix(1e9, 0).UTC()}
		if key = string([]rune(key)); damage == nil && len(before) < maxLastSeen && before[other] != (LastSeen{}) {
			want.Since = want.Since.Add(time.Second)
		}
		must(s.SaveLastSeen(key, want))
		after, err := s.readLastSeenLocked()
		if err != nil || len(after) > maxLastSeen || len(after) < maxLastSeen && after[key] != want {
			t.Fatalf("%d entries, %+v, %v", len(after), after[key], err)
		}
		if len(after) < maxLastSeen {
			for name, seen := range before {
				if name != key && (after[name].KernelID != seen.KernelID || !after[name].Since.Equal(seen.Since)) {
					t.Errorf("%q changed from %+v to %+v", name, seen, after[name])
				}
			}
		}
		kept, err := filepath.Glob(filepath.Join(s.dir, lastSeenName+"*"))
		must(err)
		for _, path := range kept {
			if filepath.Base(path) != lastSeenName {
				if damage == nil {
					t.Errorf("%q was set aside without damage", path)
				}
				must(os.Remove(path))
			}
		}
	})
}
