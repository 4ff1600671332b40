package checkpoint

import (
	"errors"
	"fmt"
	"testing"

	"colabrelay/shared/damage"
)

// Load only reads: the file stays as it is, and its caller says which name is damaged.
func TestDamagedCheckpointsAreReportedAndStay(t *testing.T) {
	damage.Files{
		Make: func(t testing.TB, dir string) {
			for _, name := range []string{"train", "other"} {
				if _, err := Save(dir, name, map[string]string{"is": name}); err != nil {
					t.Fatal(err)
				}
			}
		},
		Use: func(t testing.TB, dir string) (found, said string) {
			var value map[string]string
			_, err := Load(dir, "train", &value)
			if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrNotFound) {
				t.Errorf("the error is none of this package: %v", err)
			}
			if err != nil {
				said = fmt.Sprintf("%v %s", err, Path(dir, "train"))
			}
			if _, err := Load(dir, "other", nil); err != nil {
				t.Errorf("another checkpoint: %v", err)
			}
			if _, err := Names(dir); err != nil {
				t.Errorf("the list: %v", err)
			}
			return value["is"], said
		},
		Damage:   []string{"train.json"},
		MaxAlloc: 5 * MaxBytes, // a checkpoint may have 64 MiB
	}.Test(t)
}
