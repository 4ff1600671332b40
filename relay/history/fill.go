package history

import "colabrelay/shared/contract"

// Fill returns the events that a VM answered for a run, with the history's in place of the
// gaps: a VM whose disk was full, or which dropped old output, may have less than this computer
// was sent. A gap of which the history has nothing stays.
func (s *Store) Fill(executionID string, events []contract.Event) []contract.Event {
	var kept []contract.Event
	filled := make([]contract.Event, 0, len(events))
	for _, ev := range events {
		gap, ok := rangeOf(&ev)
		if ev.Type != contract.EventGap || !ok {
			filled = append(filled, ev)
			continue
		}
		if kept == nil {
			kept = s.keptEvents(executionID)
		}
		filled = append(filled, pieces(kept, ev, gap.End())...)
	}
	return filled
}

// keptEvents returns a run's events without gaps, none if the history can't be read.
func (s *Store) keptEvents(executionID string) []contract.Event {
	all := []contract.Event{}
	run, err := s.Get(executionID)
	if err != nil {
		return all
	}
	events, err := s.Events(run)
	if err != nil {
		return all
	}
	for _, ev := range events {
		if ev.Type != contract.EventGap {
			all = append(all, ev)
		}
	}
	return all
}

// pieces returns the kept events in place of a gap, and gaps for those that are not kept.
func pieces(kept []contract.Event, gap contract.Event, end int64) []contract.Event {
	var found []contract.Event
	next := gap.Offset
	hole := func(to int64) {
		if to > next {
			found = append(found, contract.Event{Offset: next, Time: gap.Time, Type: contract.EventGap, Events: to - next})
		}
	}
	for _, ev := range kept {
		if ev.Offset >= next && ev.Offset < end {
			hole(ev.Offset)
			found = append(found, ev)
			next = ev.Offset + 1
		}
	}
	if len(found) == 0 {
		return []contract.Event{gap}
	}
	hole(end)
	return found
}
