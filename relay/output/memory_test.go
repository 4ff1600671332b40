package output

import (
	"encoding/json"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
)

// Payloads in the events themselves are held by each of many notebooks while it waits for its turn.
// Together they take a bounded part of memory; what has no room there is named, not kept.
func TestPayloadsInEventsOfManyNotebooksTakeABoundedPartOfMemory(t *testing.T) {
	const size = 1000
	shown := contract.Event{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{
		"text/html": json.RawMessage(`"` + strings.Repeat("x", memory.FreeDisplays+size-2) + `"`),
	}}
	for left, kept := range map[int64]bool{size: true, size - 1: false} {
		all := memory.Displays.Most() - left
		if !memory.Displays.Take(all) {
			t.Fatal("another test holds displays")
		}
		cell := new(Collector).Begin("a")
		cell.Add(t.Context(), []contract.Event{shown}, nil)
		memory.Displays.Return(all)
		if data := cell.Outputs()[0].Data; (data["text/html"] != nil) != kept {
			t.Errorf("with room for %d bytes: %.80v", left, data)
		}
	}
	if !memory.Displays.Take(memory.Displays.Most()) {
		t.Fatal("the cells keep their room")
	}
	memory.Displays.Return(memory.Displays.Most())
}
