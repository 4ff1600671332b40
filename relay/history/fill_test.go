package history

import (
	"fmt"
	"slices"
	"testing"

	"colabrelay/shared/contract"
)

func TestGapsOfTheVMAreFilledFromTheHistory(t *testing.T) {
	s := newStore(t, t.TempDir(), DefaultBytes)
	r := s.Record("work")
	gap := func(from, events, bytes int64) contract.Event {
		return contract.Event{Offset: from, Type: contract.EventGap, Events: events, Bytes: bytes}
	}
	r.Submitted("vm", submit("1"), answer("e1", contract.StatusRunning, stream(0, "0"), stream(1, "1")))
	r.Answered("vm", answer("e1", contract.StatusRunning, stream(3, "3"), gap(4, 3, 0)))
	written(t, s)
	texts := func(events []contract.Event) (all []string) {
		for _, ev := range events {
			if ev.Type == contract.EventGap {
				ev.Text = fmt.Sprintf("gap %d+%d %d", ev.Offset, ev.Events, ev.Bytes)
			}
			all = append(all, ev.Text)
		}
		return all
	}
	for _, test := range []struct {
		id     string
		events []contract.Event
		want   []string
	}{
		{"e1", []contract.Event{gap(0, 6, 0), stream(6, "6")}, []string{"0", "1", "gap 2+1 0", "3", "gap 4+2 0", "6"}},
		{"e1", []contract.Event{gap(1, 1, 9), stream(2, "2"), gap(4, 2, 7)}, []string{"1", "2", "gap 4+2 7"}},
		{"e1", []contract.Event{stream(0, "other")}, []string{"other"}},
		{"e1", []contract.Event{gap(-1, 3, 0), gap(0, 1<<62, 5)}, []string{"gap -1+3 0", "gap 0+4611686018427387904 5"}}, // no executor sends them
		{"unknown", []contract.Event{gap(0, 6, 5)}, []string{"gap 0+6 5"}},
	} {
		if got := texts(s.Filler(test.id)(test.events)); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.id, got, test.want)
		}
	}
}
