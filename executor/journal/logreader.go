package journal

import (
	"fmt"

	"colabrelay/shared/contract"
)

// logReader gathers events from segment after segment.
type logReader struct {
	events []contract.Event
	offset int64 // of the next event to read
	passed int64 // bytes of the log up to the end of the last segment
	room   int64 // bytes of events to read
}

// read returns complete events from offset on, about maxBytes of them but at least
// one, and the offset after them.
func (l *eventLog) read(offset, maxBytes int64) ([]contract.Event, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.loadLocked(); err != nil {
		return nil, 0, err
	}
	l.dropMissingLocked()
	r := logReader{events: []contract.Event{}, offset: offset, room: maxBytes}
	for _, s := range l.segments {
		if err := r.read(s); err != nil {
			return nil, 0, fmt.Errorf("segment of offset %d: %w", s.first, err)
		}
		if r.room <= 0 {
			return r.events, r.offset, nil
		}
	}
	r.skipTo(l.next, l.written)
	return r.events, r.offset, nil
}

// read reads a segment, and a gap if segments before it are missing.
func (r *logReader) read(s *segment) error {
	if err := s.index(); err != nil {
		return err
	}
	r.skipTo(s.first, s.start)
	r.passed = s.start + s.size
	if r.offset >= s.end {
		return nil
	}
	events, used, err := s.read(r.offset, r.room)
	if err != nil {
		return err
	}
	r.events = append(r.events, events...)
	r.room -= used
	if n := len(events); n > 0 {
		r.offset = events[n-1].Offset + offsets(events[n-1])
	}
	return nil
}

// skipTo adds a gap up to the event at offset, which begins position bytes into the
// log, unless that is the next event to read.
func (r *logReader) skipTo(offset, position int64) {
	if r.offset < offset {
		r.events = append(r.events, contract.Event{
			Offset: r.offset, Type: contract.EventGap, Bytes: position - r.passed, Events: offset - r.offset,
		})
		r.offset = offset
	}
}
