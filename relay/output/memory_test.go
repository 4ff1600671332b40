package output

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
)

// Of many notebooks that run at once, one holds large payloads. Another one waits until the call
// of the first ends, or its own does, and then requests them again. Small ones do not wait.
func TestOneNotebookAtATimeHoldsLargePayloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fetched := 0
		fetch := func(_ context.Context, b contract.Blob, w io.Writer) error {
			fetched++
			_, err := w.Write(make([]byte, b.Bytes))
			return err
		}
		first, second, small := new(Collector), new(Collector), new(Collector)
		first.Begin("a").Add(t.Context(), []contract.Event{blob(9 << 20)}, fetch)
		waiting := second.Begin("a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		waiting.Add(ctx, []contract.Event{blob(9 << 20)}, fetch)
		small.Begin("a").Add(t.Context(), []contract.Event{blob(freePayloads / 2)}, fetch)
		if fetched != 2 {
			t.Errorf("%d payloads were fetched, want the first and the small one", fetched)
		}
		first.Close()
		waiting.Add(t.Context(), nil, fetch)
		if fetched != 3 || waiting.Outputs()[0].Data["image/png"] == nil {
			t.Errorf("%d payloads, %v", fetched, waiting.Outputs()[0].Data["text/plain"])
		}
		second.Close()
		small.Close()
		if done, err := memory.Notebooks.Take(t.Context()); err != nil {
			t.Error(err)
		} else {
			done()
		}
	})
}

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
