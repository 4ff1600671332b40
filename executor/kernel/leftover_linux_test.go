package kernel

import (
	"fmt"
	"os"
	"testing"

	"colabrelay/shared/damage"
)

// The record names this process, which must survive: the record has another boot.
func TestADamagedRecordIsKeptAndReported(t *testing.T) {
	damage.Files{
		Make: func(t testing.TB, dir string) {
			content := fmt.Sprintf(`{"pid":%d,"start_time":1,"boot_id":"another"}`, os.Getpid())
			if err := os.WriteFile(recordPath(dir), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		Use: func(t testing.TB, dir string) (found, said string) {
			old, err := readRecord(recordPath(dir))
			found, said = fmt.Sprintf("%+v", old), fmt.Sprint(err)
			if err := writeRecord(recordPath(dir), os.Getpid()); err != nil {
				t.Error(err)
			}
			old, err = readRecord(recordPath(dir))
			if err != nil || old.PID != os.Getpid() {
				t.Errorf("a new record reads as %+v, %v", old, err)
			}
			return found, said
		},
		Damage:    []string{"kernel.json"},
		Rewritten: []string{"kernel.json"},
	}.Test(t)
}
