package journal

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

func numbered(n int) tombstone {
	at := time.Unix(int64(n), 0).UTC()
	return tombstone{
		ID: fmt.Sprintf("0198c0de-0000-7000-8000-%012d", n), RequestID: fmt.Sprintf("request-%d", n),
		Code: "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU", Status: contract.StatusSucceeded,
		KernelID: "0198c0de-0000-7000-8000-000000000000", Created: at, Started: &at, Finished: &at, Timeout: 600, Next: 3,
	}
}

func tombstonesIn(t *testing.T, dir string, limit int) *tombstones {
	t.Helper()
	stones, err := openTombstones(dir, limit, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stones.close)
	return stones
}

func addNumbered(t *testing.T, stones *tombstones, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		if err := stones.add(numbered(n)); err != nil {
			t.Fatal(err)
		}
	}
}

// A kill while a line is written loses nothing that was written before.
func TestTombstonesSurviveAKill(t *testing.T) {
	dir := t.TempDir()
	addNumbered(t, tombstonesIn(t, dir, 100), 0, 3)
	complete, err := os.ReadFile(filepath.Join(dir, newerFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{0, 1, len(complete) / 2, len(complete) - 1} {
		torn := t.TempDir()
		if err := os.WriteFile(filepath.Join(torn, newerFile), complete[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		stones := tombstonesIn(t, torn, 100)
		addNumbered(t, stones, 7, 8)
		survivors := cut * 3 / len(complete)
		for n := range 3 {
			if _, ok := stones.byRequest(numbered(n).RequestID); ok != (n < survivors) {
				t.Errorf("cut at %d of %d: execution %d known: %v", cut, len(complete), n, ok)
			}
		}
		if s, ok := stones.byRequest("request-7"); !ok || s.ID != numbered(7).ID {
			t.Errorf("cut at %d: the next tombstone is missing", cut)
		}
		stones.close()
	}
}
