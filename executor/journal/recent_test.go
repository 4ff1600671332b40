package journal

import (
	"fmt"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

// A log that grows over the bound leaves memory in the middle of a run, and reads on.
func TestLogOverTheBoundOfMemoryIsReadFromDisk(t *testing.T) {
	r := create(t, openIn(t, t.TempDir(), Limits{}), contract.Submit{RequestID: "r", Code: "1"})
	var all strings.Builder
	crossed := false
	for n := range 150 {
		text := strings.Repeat(fmt.Sprint(n%10), 300)
		all.WriteString(text)
		if err := r.Append(stdout(text)); err != nil {
			t.Fatal(err)
		}
		if cost := int64(n+1) * (300 + eventOverhead); r.events.recent != nil && cost > maxRecent {
			t.Fatalf("%d events are still in memory", n+1)
		}
		crossed = crossed || r.events.recent == nil
		var read strings.Builder
		x, err := r.read(ReadRequest{MaxBytes: contract.MaxReadBytes})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range x.Events {
			read.WriteString(e.Text)
		}
		if read.String() != all.String() || x.NextOffset != int64(n+1) {
			t.Fatalf("after %d events, %d bytes are read up to offset %d", n+1, read.Len(), x.NextOffset)
		}
	}
	if !crossed {
		t.Error("the log never left memory")
	}
}
