package execution

import (
	"runtime"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// Recent runs still get late output. Their replies, of which nothing more is used, are not kept
// with them.
func TestTheRepliesOfRunsThatEndedTakeNoMemory(t *testing.T) {
	tier.Long(t)
	b := newBench(t, stacks.Old(t), settings{ownKernel: true})
	used := func() int64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	run := func() {
		if x := b.run("get_ipython().payload_manager.write_payload({'source': 'x', 'data': {'text/plain': 'x' * 8_000_000}})"); x.Status != contract.StatusSucceeded {
			t.Fatalf("%s: %s", x.Status, x.Reason)
		}
	}
	run()
	before := used()
	for range recentRuns / 2 {
		run()
	}
	if grown := used() - before; grown > 16<<20 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
}
