package journal

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The journal keeps the previews of thousands of executions.
func TestAnExecutionDoesNotKeepItsCode(t *testing.T) {
	tier.Long(t)
	const size, n = 1 << 20, 32
	j := openIn(t, t.TempDir(), Limits{})
	records := make([]*Record, n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range records {
		records[i] = create(t, j, contract.Submit{RequestID: fmt.Sprint("request-", i), Code: "x = 1\n" + strings.Repeat("#", size)})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > n*size/2 {
		t.Errorf("%d bytes are kept of %d", kept, n*size)
	}
	runtime.KeepAlive(records)
}
