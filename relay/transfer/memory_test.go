package transfer

import (
	"os"
	"runtime"
	"testing"

	"colabrelay/shared/tier"
)

// A download of 256 MiB, mostly zeros, needs only the memory of the parts in flight.
func TestALargeDownloadNeedsLittleMemory(t *testing.T) {
	tier.Long(t)
	binary, err := executorBinary()
	must(t, err)
	v := startVM(t, binary) // not parallel, because memory is measured for the whole process
	const size = 256 << 20
	must(t, os.WriteFile(v.path("a.bin"), []byte("begin"), 0o600))
	must(t, os.Truncate(v.path("a.bin"), size))
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	peak, calls := uint64(0), 0
	r, err := Download(t.Context(), v.client, v.path("a.bin"), Local{Dir: t.TempDir()}, Options{Report: func(Progress) {
		if calls++; calls%16 == 0 {
			runtime.ReadMemStats(&now)
			peak = max(peak, now.HeapAlloc)
		}
	}})
	must(t, err)
	grown := int64(peak) - int64(before.HeapAlloc)
	t.Logf("the heap grew by at most %d MiB", grown>>20)
	if r.DoneBytes != size || grown > 96<<20 {
		t.Errorf("%+v; the heap grew by %d bytes", r, grown)
	}
}
