package line

import (
	"runtime"
	"strings"
	"testing"
)

// An announced length takes memory at once up to a bound. Past it, only bytes that arrive do:
// otherwise a head of 200 bytes would take 8 MiB.
func TestAnAnnouncedLengthTakesLittleMemory(t *testing.T) {
	for announced, most := range map[int64]uint64{maxAtOnce: 2 * maxAtOnce, maxAtOnce + 1: 64 << 10} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if text, err := readAll(strings.NewReader("x"), announced, MaxSealedBody); err != nil || string(text) != "x" {
			t.Errorf("%q, %v", text, err)
		}
		runtime.ReadMemStats(&after)
		took := after.TotalAlloc - before.TotalAlloc
		if took > most || announced <= maxAtOnce && took < maxAtOnce {
			t.Errorf("%d announced bytes take %d", announced, took)
		}
	}
}
