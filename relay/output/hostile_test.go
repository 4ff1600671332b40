package output

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"testing"

	"colabrelay/shared/contract"
)

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
		"small ones":    {1, 1, 511}, // each counts as minBlob
		"large ones":    {8 << 20, 8 << 20, 2},
		"one that lies": {1, 2, 0},
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
