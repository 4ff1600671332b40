package output

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// A run's events are at most 16 MiB. No order of them may take more than a few seconds or
// several times their size.
func TestNoOutputIsExpensiveToCollect(t *testing.T) {
	tier.Long(t)
	var displays []contract.Event
	shown := map[string]json.RawMessage{"text/plain": json.RawMessage(`"a"`)}
	for range 10_000 {
		displays = append(displays, contract.Event{Type: contract.EventDisplayData, DisplayID: "d", Data: shown})
	}
	for range 10_000 {
		displays = append(displays, contract.Event{Type: contract.EventUpdateDisplayData, DisplayID: "d", Data: shown})
	}
	var mixed []contract.Event
	for range 100_000 {
		mixed = append(mixed, print("o"), contract.Event{Type: contract.EventStream, Name: contract.Stderr, Text: "\r"}, contract.Event{Type: contract.EventStream, Name: contract.Stderr, Text: "e"})
	}
	nested := json.RawMessage(strings.Repeat("[", 5000) + strings.Repeat("]", 5000))
	text := strings.Repeat("a", 2<<20) + strings.Repeat("\rb", 1<<20)
	for name, events := range map[string][]contract.Event{
		"updates of many displays": displays,
		"a line written over":      {{Type: contract.EventStream, Name: contract.Stdout, Text: text}},
		"mixed streams":            mixed,
		"nested JSON":              {{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"application/json": nested}}},
		"nested metadata":          {{Type: contract.EventDisplayData, Data: shown, Metadata: json.RawMessage(`{"a":` + string(nested) + `}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			written := joined(t, collect(t, new(Collector), events, nil))
			if len(written) > 4<<20 {
				t.Errorf("%d bytes", len(written))
			}
		})
	}
}

// blob returns a display of a payload outside its event, which claims a size.
func blob(claimed int64) contract.Event {
	ref := fmt.Sprintf(`{"blob":{"number":1,"bytes":%d,"sha256":"%064d"}}`, claimed, 0)
	return contract.Event{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"image/png": json.RawMessage(ref)}}
}

func TestPayloadsThatAreNamedOftenAreFetchedWithinABound(t *testing.T) {
	for name, test := range map[string]struct {
		claimed, sent int64
		kept          int
	}{
		"small ones":         {1, 1, 511}, // each counts as minBlob
		"large ones":         {8 << 20, 8 << 20, 2},
		"too large ones":     {ForNotebooks.Payload + 1, 1, 0},
		"one that lies":      {1, 2, 0},
		"one that ends soon": {2, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			events := slices.Repeat([]contract.Event{blob(test.claimed)}, 1000)
			fetched, kept := int64(0), 0
			outputs := collect(t, new(Collector), events, func(_ context.Context, _ contract.Blob, w io.Writer) error {
				n, err := w.Write(make([]byte, test.sent))
				fetched += int64(n)
				return err
			})
			for _, o := range outputs {
				if o.Data["image/png"] != nil {
					kept++
				} else if o.Data["text/plain"] != "[not kept: image/png]" {
					t.Fatalf("%v", o.Data)
				}
			}
			if kept != test.kept || fetched > ForNotebooks.Payloads {
				t.Errorf("%d kept, %d bytes fetched", kept, fetched)
			}
		})
	}
}

func TestContentsThatAreReplacedAreNotFetched(t *testing.T) {
	fetched := 0
	fetch := func(_ context.Context, _ contract.Blob, w io.Writer) error {
		fetched++
		_, err := io.WriteString(w, "12345")
		return err
	}
	shown := show(contract.EventDisplayData, "d", `{"text/plain": "first"}`)
	events := []contract.Event{shown}
	for range 10 {
		events = append(events, show(contract.EventUpdateDisplayData, "d", `{"image/png": `+blobRef+`}`))
		events = append(events, show(contract.EventDisplayData, "", `{"image/png": `+blobRef+`}`), contract.Event{Type: contract.EventClearOutput, Wait: true}, shown)
	}
	outputs := collect(t, new(Collector), events, fetch)
	if fetched != 0 || len(outputs) != 1 || outputs[0].Data["text/plain"] != "first" {
		t.Errorf("%d fetched: %+v", fetched, outputs)
	}
}

func TestAPayloadThatCannotBeHadIsRequestedThreeTimes(t *testing.T) {
	c, tries := new(Collector).Begin("a"), 0
	fail := func(context.Context, contract.Blob, io.Writer) error { tries++; return io.ErrUnexpectedEOF }
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	c.Add(t.Context(), []contract.Event{show(contract.EventDisplayData, "", `{"image/png": `+blobRef+`, "text/plain": "a"}`)}, nil)
	for range 5 {
		c.Add(cancelled, nil, fail)
		c.Add(t.Context(), nil, fail)
	}
	if got := joined(t, c.Outputs()); tries != maxTries || !strings.Contains(got, `"text/plain":["a\n","[not kept: image/png]"]`) {
		t.Errorf("%d tries: %s", tries, got)
	}
}

func TestAPayloadIsThereAfterASecondTry(t *testing.T) {
	c := new(Collector).Begin("a")
	event := show(contract.EventDisplayData, "", `{"image/png": `+blobRef+`}`)
	c.Add(t.Context(), []contract.Event{event}, func(context.Context, contract.Blob, io.Writer) error { return io.ErrUnexpectedEOF })
	before := joined(t, c.Outputs())
	c.Add(t.Context(), nil, fetchWord)
	if got := joined(t, c.Outputs()); !strings.Contains(before, "not kept") || !strings.Contains(got, `{"image/png":"Ynl0ZXM="}`) {
		t.Errorf("%s, then %s", before, got)
	}
}
