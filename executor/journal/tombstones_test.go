package journal

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
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

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The limit here is a tenth of the default: 300,000 ids take ten times as much. Over
// the limit the older half is deleted, and the next executor knows the same ids.
func TestHundredsOfThousandsOfTombstonesTakeAFewMegabytes(t *testing.T) {
	tier.Long(t)
	dir, limit := t.TempDir(), DefaultLimits.Tombstones/10
	before := heap()
	stones := tombstonesIn(t, dir, limit)
	addNumbered(t, stones, 0, 2*limit)
	if grown := heap() - before; grown > (10<<20)/8 {
		t.Errorf("%d ids take %d KiB of memory", 2*limit, grown>>10)
	}
	check := func(stones *tombstones, n int, want bool) {
		t.Helper()
		byRequest, requestKnown := stones.byRequest(numbered(n).RequestID)
		byID, idKnown := stones.byID(numbered(n).ID)
		if requestKnown != want || idKnown != want {
			t.Fatalf("execution %d: known by request %v, by id %v; want %v", n, requestKnown, idKnown, want)
		}
		if want && (byRequest.ID != numbered(n).ID || byID.RequestID != byRequest.RequestID || byID.Next != 3) {
			t.Errorf("execution %d: %+v and %+v", n, byRequest, byID)
		}
	}
	for _, n := range []int{0, 1, limit - 1, limit, 2*limit - 1} {
		check(stones, n, true)
	}
	check(stones, 2*limit, false)
	addNumbered(t, stones, 2*limit, 2*limit+1)
	again := tombstonesIn(t, dir, limit)
	for n, want := range map[int]bool{0: false, limit - 1: false, limit: true, 2 * limit: true, 2*limit + 1: false} {
		check(stones, n, want)
		check(again, n, want)
	}
}

// A kill at any byte loses nothing that was written before.
func TestTombstonesSurviveAKillAtAnyByte(t *testing.T) {
	tier.Long(t)
	dir := t.TempDir()
	addNumbered(t, tombstonesIn(t, dir, 100), 0, 3)
	complete, err := os.ReadFile(filepath.Join(dir, newerFile))
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(complete) {
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

func TestDeletedTombstonesAreWrittenAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	stones := tombstonesIn(t, dir, 2)
	addNumbered(t, stones, 0, 3)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	addNumbered(t, stones, 3, 4)
	again := tombstonesIn(t, dir, 2)
	for n := range 4 {
		if _, ok := again.byID(numbered(n).ID); !ok {
			t.Errorf("execution %d is not known", n)
		}
	}
}
