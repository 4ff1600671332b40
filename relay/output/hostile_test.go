package output

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
)

// A run's events are at most 16 MiB. No order of them may take more than a few seconds or
// several times their size.
func TestNoOutputIsExpensiveToCollect(t *testing.T) {
	var displays []contract.Event
	shown := map[string]json.RawMessage{"text/plain": json.RawMessage(`"a"`)}
	for range 20_000 {
		displays = append(displays, contract.Event{Type: contract.EventDisplayData, DisplayID: "d", Data: shown})
	}
	for range 20_000 {
		displays = append(displays, contract.Event{Type: contract.EventUpdateDisplayData, DisplayID: "d", Data: shown})
	}
	nested := json.RawMessage(strings.Repeat("[", 5000) + strings.Repeat("]", 5000))
	text := strings.Repeat("a", 2<<20) + strings.Repeat("\rb", 1<<20)
	for name, events := range map[string][]contract.Event{
		"updates of many displays": displays,
		"a line written over":      {{Type: contract.EventStream, Name: contract.Stdout, Text: text}},
		"nested JSON":              {{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"application/json": nested}}},
		"nested metadata":          {{Type: contract.EventDisplayData, Data: shown, Metadata: json.RawMessage(`{"a":` + string(nested) + `}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			written := joined(t, new(Collector).Cell(t.Context(), events, nil))
			if took := time.Since(began); took > 2*time.Second || len(written) > 6<<20 {
				t.Errorf("%d bytes in %s", len(written), took)
			}
		})
	}
}

func TestPayloadsThatAreNamedOftenAreFetchedWithinABound(t *testing.T) {
	ref := json.RawMessage(`{"blob":{"number":1,"bytes":1,"sha256":"` + strings.Repeat("0", 64) + `"}}`)
	var events []contract.Event
	for range 100 {
		events = append(events, contract.Event{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"text/plain": ref}})
	}
	large, fetched := bytes.Repeat([]byte("a"), 16<<20), 0
	outputs := new(Collector).Cell(t.Context(), events, func(_ context.Context, _ contract.Blob, w io.Writer) error {
		fetched += len(large)
		_, err := w.Write(large)
		return err
	})
	if text, _ := outputs[99].Data["text/plain"].(string); fetched > maxFetched+len(large) || text != "[not kept: text/plain]" {
		t.Errorf("%d bytes fetched; the last output is %.60q", fetched, text)
	}
}

func TestUpdatesThatAreReplacedAreNotFetched(t *testing.T) {
	ref := json.RawMessage(`{"blob":{"number":1,"bytes":1,"sha256":"` + strings.Repeat("0", 64) + `"}}`)
	shown := map[string]json.RawMessage{"text/plain": json.RawMessage(`"first"`)}
	events := []contract.Event{{Type: contract.EventDisplayData, DisplayID: "d", Data: shown}}
	for range 10 {
		events = append(events, contract.Event{Type: contract.EventUpdateDisplayData, DisplayID: "d", Data: map[string]json.RawMessage{"text/plain": ref}})
	}
	events = append(events, contract.Event{Type: contract.EventDisplayData, DisplayID: "d", Data: shown})
	fetched := 0
	outputs := new(Collector).Cell(t.Context(), events, func(_ context.Context, _ contract.Blob, w io.Writer) error {
		fetched++
		_, err := io.WriteString(w, "updated")
		return err
	})
	if fetched != 1 || outputs[0].Data["text/plain"] != "updated" || outputs[1].Data["text/plain"] != "first" {
		t.Errorf("%d fetched: %v, %v", fetched, outputs[0].Data, outputs[1].Data)
	}
}
