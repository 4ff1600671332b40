package history

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

// Whatever a run's file contains, its events are in order, each offset is there once, and a gap
// stands for what is missing.
func FuzzRead(f *testing.F) {
	head := string(encode(line{Head: &head{Version: version, ExecutionID: "e1"}}))
	event := string(encode(line{Event: &contract.Event{Offset: 2, Type: contract.EventStream}}))
	gap := string(encode(line{Event: &contract.Event{Offset: 1, Type: contract.EventGap, Events: 5}}))
	state := string(encode(line{State: &contract.Execution{End: true, NextOffset: 9}}))
	f.Add(head + event + gap + state)
	f.Add(head + strings.Replace(gap, "5", "9223372036854775807", 1) + event)
	f.Add(head[:20])
	dir := f.TempDir()
	key := keyOf("vm", "e1")
	s := New(Config{Dir: dir})
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(filepath.Join(dir, key+headSuffix), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		runs, err := s.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range runs {
			events, err := s.Events(run)
			if err != nil {
				t.Fatal(err)
			}
			next := int64(0)
			for _, ev := range events {
				at, ok := rangeOf(&ev)
				if !ok || at.Offset != next {
					t.Fatalf("%+v follows offset %d in %+v", ev, next, events)
				}
				next = at.End()
			}
		}
	})
}
