package execution

import (
	"testing"

	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// maxAllocations bounds a run of 1+1 from Submit to its answer, with a fifth to spare.
const maxAllocations = 450

func TestQuickRunAllocatesLittle(t *testing.T) {
	tier.Long(t)
	b := newBench(t, stacks.Old(t), settings{ownKernel: true})
	b.run("1+1")
	if n := testing.AllocsPerRun(50, func() { b.run("1+1") }); n > maxAllocations {
		t.Errorf("a run of 1+1 takes %.0f allocations, want at most %d", n, maxAllocations)
	}
}
