package colabcli

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"colabrelay/relay/vm"
	"colabrelay/shared/damage"
)

// A damaged record hides no other VM, and its VM is not started twice.
func TestADamagedRecordIsKeptAndReported(t *testing.T) {
	const damaged, other = "colab-relay-1", "colab-relay-2"
	damage.Files{
		Make: func(t testing.TB, dir string) {
			r := records{dir, slog.New(slog.DiscardHandler)}
			for _, id := range []string{damaged, other} {
				file, err := r.lock(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				if err := write(file, record{Endpoint: "endpoint of " + id, Spec: vm.Spec{Accelerator: "T4"}}); err != nil {
					t.Fatal(err)
				}
				file.Close()
			}
		},
		Use: func(t testing.TB, dir string) (found, said string) {
			var log bytes.Buffer
			b := New(Config{Dir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))})
			known, err := b.records.all()
			if err != nil || known[other].Endpoint != "endpoint of "+other {
				t.Errorf("the other VM: %+v, %v", known, err)
			}
			if log.Len() > 0 {
				if err := b.earlier(damaged, nil); err == nil {
					t.Error("a VM that may run is started again")
				}
				if _, err := os.Lstat(b.records.path(damaged)); err == nil {
					t.Error("the damaged record is still in place")
				}
			}
			return fmt.Sprint(known[damaged].Endpoint), log.String()
		},
		Damage: []string{damaged + ".json"},
		// An emptied record counts as one of a creation that has not begun.
		Lines: []string{damaged + ".json"},
	}.Test(t)
}
