package history

import (
	"cmp"
	"slices"

	"colabrelay/shared/contract"
)

// Filler returns a function that puts the history's events of a run in place of the gaps in
// what a VM answers: a VM whose disk was full, or which dropped old output, may have less than
// this computer was sent. A gap of which the history has nothing stays. The function reads the
// run once, at the first gap.
func (s *Store) Filler(executionID string) func(events []contract.Event) []contract.Event {
	var kept []contract.Event
	read := false
	return func(events []contract.Event) []contract.Event {
		filled := make([]contract.Event, 0, len(events))
		for _, ev := range events {
			gap, ok := rangeOf(&ev)
			if ev.Type != contract.EventGap || !ok {
				filled = append(filled, ev)
				continue
			}
			if !read {
				kept, read = s.keptEvents(executionID), true
			}
			filled = append(filled, pieces(kept, ev, gap.End())...)
		}
		return filled
	}
}

// keptEvents returns a run's events by offset, without gaps; none if the history can't be read.
func (s *Store) keptEvents(executionID string) []contract.Event {
	run, err := s.Get(executionID)
	if err != nil {
		return nil
	}
	events, err := s.Events(run)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(events, func(ev contract.Event) bool { return ev.Type == contract.EventGap })
}

// pieces returns the kept events in place of a gap, and gaps for those that are not kept.
func pieces(kept []contract.Event, gap contract.Event, end int64) []contract.Event {
	next := gap.Offset
	first, _ := slices.BinarySearchFunc(kept, next, func(ev contract.Event, offset int64) int { return cmp.Compare(ev.Offset, offset) })
	var found []contract.Event
	hole := func(to int64) {
		if to > next {
			found = append(found, contract.Event{Offset: next, Time: gap.Time, Type: contract.EventGap, Events: to - next})
		}
	}
	for _, ev := range kept[first:] {
		if ev.Offset >= end {
			break
		}
		hole(ev.Offset)
		found = append(found, ev)
		next = ev.Offset + 1
	}
	if len(found) == 0 {
		return []contract.Event{gap}
	}
	hole(end)
	return found
}
