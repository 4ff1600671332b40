package execution

import (
	"encoding/json"
	"time"

	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
)

// joinTime is how long small stream pieces are gathered into one event.
const joinTime = 50 * time.Millisecond

// joined is stream text not yet written as an event. Pieces come in their order
// and change of stream ends an event, so stdout and stderr stay as they were mixed.
type joined struct {
	name    string
	text    []byte
	since   time.Time
	flushed time.Time
}

// missing counts output that could not be written; a gap takes its place.
type missing struct {
	events, bytes int64
	everBytes     int64
	err           error
}

// output turns one message into events. Types it doesn't know are left out.
func (r *run) output(m *jupyter.Message, now time.Time) {
	switch m.Header.MsgType {
	case jupyter.MsgStream:
		r.stream(m, now)
		return
	case jupyter.MsgDisplayData, jupyter.MsgUpdateDisplayData, jupyter.MsgExecuteResult,
		jupyter.MsgError, jupyter.MsgClearOutput:
	default:
		return
	}
	if m.Cut > 0 { // a piece of a display or an error is of no use
		r.missed(1, m.Cut)
		return
	}
	r.flush(now)
	event := contract.Event{Time: now.UTC(), Type: contract.EventType(m.Header.MsgType)}
	if err := r.fill(&event, m); err != nil {
		r.log.Warn("a message can't be read", "component", "execution", "execution_id", r.entry.id,
			"type", m.Header.MsgType, "err", err)
		return
	}
	r.emit(event)
}

// fill puts a message's content into its event.
func (r *run) fill(event *contract.Event, m *jupyter.Message) error {
	switch m.Header.MsgType {
	case jupyter.MsgError:
		var e jupyter.ErrorContent
		err := m.Decode(&e)
		bounded, note := boundError(e.EName, e.EValue, e.Traceback)
		event.EName, event.EValue, event.Traceback, event.Cut = bounded.EName, bounded.EValue, bounded.Traceback, note
		return err
	case jupyter.MsgClearOutput:
		var c jupyter.ClearOutput
		err := m.Decode(&c)
		event.Wait = c.Wait
		return err
	}
	var d jupyter.DisplayData
	if err := m.Decode(&d); err != nil {
		return err
	}
	r.display(event, d)
	return nil
}

// page keeps what IPython hands to a pager, the answer to len? say: it comes in
// the reply's payload and nowhere else.
func (r *run) page(reply *jupyter.ExecuteReply) {
	for _, p := range reply.Payload {
		if p.Source == "page" && len(p.Data) > 0 {
			now := time.Now()
			r.flush(now)
			event := contract.Event{Time: now.UTC(), Type: contract.EventDisplayData}
			r.display(&event, jupyter.DisplayData{Data: p.Data})
			r.emit(event)
		}
	}
}

// stream joins text to what came before it. Of a message that was too big there
// is a beginning and an end, and a gap between them.
func (r *run) stream(m *jupyter.Message, now time.Time) {
	var s jupyter.Stream
	if err := m.Decode(&s); err != nil {
		r.log.Warn("a stream message can't be read", "component", "execution", "execution_id", r.entry.id, "err", err)
	}
	if name := cut(s.Name, maxStreamName); name != r.joined.name {
		r.flush(now)
		r.joined.name = name
	}
	r.text(s.Text, now)
	if m.Cut > 0 {
		r.missed(1, m.Cut)
		r.text(m.TornEnd(), now)
	}
	// After a quiet moment the first piece goes out at once: a line's way to its
	// reader is short, and a flood still makes few events.
	if now.Sub(r.joined.flushed) >= joinTime {
		r.flush(now)
	}
}

// text joins a stream's text, a JSON string.
func (r *run) text(raw json.RawMessage, now time.Time) {
	if len(raw) == 0 {
		return
	}
	err := jupyter.Text(raw, contract.MaxStreamEvent, func(chunk []byte) {
		if len(r.joined.text)+len(chunk) > contract.MaxStreamEvent {
			r.flush(now)
		}
		if len(r.joined.text) == 0 {
			r.joined.since = now
		}
		r.joined.text = append(r.joined.text, chunk...)
	})
	if err != nil {
		r.log.Warn("a stream's text can't be read", "component", "execution", "execution_id", r.entry.id, "err", err)
	}
}

// flush writes the joined text as an event.
func (r *run) flush(now time.Time) {
	if len(r.joined.text) == 0 {
		return
	}
	r.emit(contract.Event{Time: now.UTC(), Type: contract.EventStream, Name: r.joined.name, Text: string(r.joined.text)})
	r.joined.text = r.joined.text[:0]
	r.joined.flushed = now
}

// emit writes an event. When the disk is full it is counted, and a gap stands
// there once there is room again.
func (r *run) emit(event contract.Event) {
	if r.missing.events > 0 {
		gap := contract.Event{Time: event.Time, Type: contract.EventGap, Bytes: r.missing.bytes, Events: r.missing.events}
		if r.entry.append(gap) == nil {
			r.missing.events, r.missing.bytes = 0, 0
		}
	}
	err := r.entry.append(event)
	if err == nil {
		return
	}
	size := int64(len(event.Text) + 1)
	r.missing.events++
	r.missing.bytes += size
	r.missing.everBytes += size
	if isFull(err) {
		err = ErrDiskFull
	}
	if r.missing.err == nil {
		r.log.Error("writing the execution log", "component", "execution", "execution_id", r.entry.id, "err", err)
	}
	r.missing.err = err
}

// missed notes messages that came faster than they could be taken, or that were
// too big to be.
func (r *run) missed(messages, size int64) {
	r.flush(time.Now())
	r.emit(contract.Event{Time: time.Now().UTC(), Type: contract.EventGap, Bytes: size, Events: messages})
}
