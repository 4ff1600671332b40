package execution

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"colabrelay/executor/journal"
	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
	"colabrelay/shared/widgets"
)

// joinedText is stream text that is not written as an event yet. A change of stream
// ends an event, so that stdout and stderr keep their order.
type joinedText struct {
	name    string
	text    []byte
	flushed time.Time
}

// lostOutput counts output that could not be written. A gap replaces it.
type lostOutput struct {
	events, bytes int64 // not replaced yet
	totalBytes    int64
	err           error
}

// output turns a message into events. Messages of other types are ignored.
func (r *run) output(m *jupyter.Message, now time.Time) {
	if r.clearNext && m.Header.MsgType != jupyter.MsgUpdateDisplayData {
		r.clearNext = false
		r.widgets.Clear(r.msgID)
	}
	switch m.Header.MsgType {
	case jupyter.MsgStream, jupyter.MsgDisplayData, jupyter.MsgUpdateDisplayData, jupyter.MsgExecuteResult,
		jupyter.MsgError, jupyter.MsgClearOutput:
	default:
		return
	}
	if m.Cut > 0 {
		r.gap(1, m.Cut)
		return
	}
	if m.Header.MsgType == jupyter.MsgStream {
		r.stream(m, now)
		return
	}
	r.flush(now)
	event := contract.Event{Time: now.UTC(), Type: contract.EventType(m.Header.MsgType)}
	switch err := r.fill(&event, m); {
	case errors.Is(err, errTooLarge):
		r.gap(1, int64(len(m.Content)))
	case err != nil:
		r.log.Warn("decoding a message", "execution_id", r.record.ID, "type", m.Header.MsgType, "err", err)
	default:
		r.emit(event)
	}
}

// strayOutput is output of a request that is no run's, such as one that lists variables: ipykernel
// gives the newest request what threads print and show.
func (r *run) strayOutput(m *jupyter.Message, now time.Time) {
	var d jupyter.DisplayData
	switch m.Header.MsgType {
	case jupyter.MsgDisplayData, jupyter.MsgUpdateDisplayData:
		if m.Decode(&d) == nil && isMarker(d) {
			return
		}
		fallthrough
	case jupyter.MsgStream:
		r.output(m, now)
	}
}

// errTooLarge: a display is too large for an event.
var errTooLarge = errors.New("the display is too large")

// fill puts a message's content into its event.
func (r *run) fill(event *contract.Event, m *jupyter.Message) error {
	switch m.Header.MsgType {
	case jupyter.MsgError:
		var e jupyter.ErrorContent
		err := m.Decode(&e)
		r.failure(event, e)
		return err
	case jupyter.MsgClearOutput:
		var c jupyter.ClearOutput
		err := m.Decode(&c)
		if r.clearNext = c.Wait; !c.Wait {
			r.widgets.Clear(r.msgID)
		}
		event.Wait = c.Wait
		return err
	}
	var d jupyter.DisplayData
	if err := m.Decode(&d); err != nil {
		return err
	}
	if !r.display(event, d) {
		return errTooLarge
	}
	if view := widgets.View(d.Data); view != "" || m.Header.MsgType == jupyter.MsgUpdateDisplayData {
		event.DisplayID = r.widgets.Show(r.msgID, event.DisplayID, view)
	}
	return nil
}

// page emits what IPython hands to a pager, for example the answer to len?. It is
// only in the reply's payload.
func (r *run) page(reply *jupyter.ExecuteReply) {
	for _, p := range reply.Payload.Items {
		if p.Source == "page" && len(p.Display.Data) > 0 {
			now := time.Now()
			r.flush(now)
			event := contract.Event{Time: now.UTC(), Type: contract.EventDisplayData}
			if r.display(&event, p.Display) {
				r.emit(event)
			} else {
				reply.Payload.Omitted++
			}
		}
	}
	if reply.Payload.Omitted > 0 {
		r.gap(int64(reply.Payload.Omitted), reply.Payload.OmittedBytes)
	}
}

// stream joins text to the text before it.
func (r *run) stream(m *jupyter.Message, now time.Time) {
	var s jupyter.Stream
	if err := m.Decode(&s); err != nil {
		r.log.Warn("decoding a stream message", "execution_id", r.record.ID, "err", err)
	}
	if name := journal.Shorten(s.Name, maxStreamName); name != r.joined.name {
		r.flush(now)
		r.joined.name = name
	}
	r.join(s.Text, now)
	// After a pause the first piece is written immediately: a single line reaches its
	// reader fast, and a flood still makes few events.
	if now.Sub(r.joined.flushed) >= tickTime {
		r.flush(now)
	}
}

// join adds stream text, which is a JSON string.
func (r *run) join(raw json.RawMessage, now time.Time) {
	if len(raw) == 0 {
		return
	}
	err := jupyter.Text(raw, contract.MaxStreamEvent, func(chunk []byte) {
		if len(r.joined.text)+len(chunk) > contract.MaxStreamEvent {
			r.flush(now)
		}
		r.joined.text = append(r.joined.text, chunk...)
	})
	if err != nil {
		r.log.Warn("decoding the text of a stream", "execution_id", r.record.ID, "err", err)
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

// emit writes an event and reports whether it could. If the disk is full, the event is
// counted, and a gap replaces it once there is room again.
func (r *run) emit(event contract.Event) (written bool) {
	if r.lost.events > 0 {
		gap := contract.Event{Time: event.Time, Type: contract.EventGap, Bytes: r.lost.bytes, Events: r.lost.events}
		if r.record.Append(gap) == nil {
			r.lost.events, r.lost.bytes = 0, 0
		}
	}
	if err := r.record.Append(event); err != nil {
		r.countLost(event, err)
		return false
	}
	return true
}

func (r *run) countLost(event contract.Event, err error) {
	size := int64(len(event.Text) + 1)
	r.lost.events++
	r.lost.bytes += size
	r.lost.totalBytes += size
	if r.lost.err == nil {
		r.log.Error("writing the execution log", "execution_id", r.record.ID, "err", err)
	}
	r.lost.err = err
}

// gap writes a gap for messages that arrived too fast, or that were too big.
func (r *run) gap(messages, size int64) {
	now := time.Now()
	r.flush(now)
	r.emit(contract.Event{Time: now.UTC(), Type: contract.EventGap, Bytes: size, Events: messages})
}

// decodePayload writes the decoded form of a payload: the text of a JSON string, or its
// bytes if the MIME type is binary and so in base64; any other JSON as it is.
func decodePayload(w io.Writer, mime string, raw json.RawMessage) error {
	if raw[0] != '"' {
		_, err := w.Write(raw)
		return err
	}
	if !isBase64(mime) {
		return writeText(w, raw)
	}
	read, write := io.Pipe()
	go func() { write.CloseWithError(writeText(write, raw)) }()
	_, err := io.Copy(w, base64.NewDecoder(base64.StdEncoding, read))
	read.CloseWithError(err)
	return err
}

func writeText(w io.Writer, raw json.RawMessage) error {
	var failed error
	err := jupyter.Text(raw, contract.MaxStreamEvent, func(chunk []byte) {
		if failed == nil {
			_, failed = w.Write(chunk)
		}
	})
	return errors.Join(err, failed)
}

// isBase64 reports whether Jupyter encodes payloads of a MIME type in base64.
func isBase64(mime string) bool {
	kind, rest, _ := strings.Cut(mime, "/")
	switch kind {
	case "image":
		return rest != "svg+xml"
	case "audio", "video":
		return true
	}
	return mime == "application/pdf" || mime == "application/octet-stream"
}

// maxStates is how many bytes of widgets' states one event has.
const maxStates = 512 << 10

// showWidgets writes the texts of widgets that have changed. A widget of an earlier run is shown by
// the run during which it changes.
func (r *runner) showWidgets(c *run, now time.Time) {
	for _, view := range r.widgets.Views(now) {
		text, _ := json.Marshal(view.Text) // a string
		c.flush(now)
		c.emit(contract.Event{
			Time: now.UTC(), Type: contract.EventWidgetView, DisplayID: view.DisplayID, Data: map[string]json.RawMessage{"text/plain": text},
		})
	}
}

// keepWidgets writes the states of widgets that have changed, for a notebook's metadata.
func (r *run) keepWidgets(now time.Time) {
	states, size := map[string]json.RawMessage{}, 0
	write := func() {
		text, err := json.Marshal(widgets.NewDocument(states))
		if err != nil || len(states) == 0 {
			return
		}
		r.flush(now)
		r.emit(contract.Event{Time: now.UTC(), Type: contract.EventWidgetState, Data: map[string]json.RawMessage{widgets.StateMIME: text}})
		states, size = map[string]json.RawMessage{}, 0
	}
	for id, state := range r.widgets.States() {
		state, _ = json.Marshal(json.RawMessage(state)) // with < and > as they are in an event
		n := len(id) + len(state)
		if n > maxStates {
			r.gap(1, int64(n))
			continue
		}
		if size += n; size > maxStates {
			write()
			size = n
		}
		states[id] = state
	}
	write()
}

// tellKernel sends the kernel what Output widgets have captured, before the next run begins.
func (r *runner) tellKernel(ctx context.Context) {
	for _, update := range r.widgets.Updates() {
		if _, err := r.kernel.Client.Send(ctx, jupyter.Shell, jupyter.MsgComm, update); err != nil {
			r.q.log.Warn("telling the kernel what a widget shows", "err", err)
		}
	}
}

// Bounds of parts of an event, in bytes unless noted.
const (
	maxTypes      = 64 // MIME types of one display
	maxDisplayID  = 1 << 10
	maxStreamName = 64
	maxErrorName  = 4 << 10
	maxErrorValue = 16 << 10
	maxCut        = 1 << 10
)

// cuts lists what was omitted from an event.
type cuts []string

func (c *cuts) add(format string, args ...any) { *c = append(*c, fmt.Sprintf(format, args...)) }

func (c cuts) String() string { return journal.Shorten(strings.Join(c, "; "), maxCut) }

// counted is a number and its noun: "1 byte", "2 bytes".
func counted[N int | int64](n N, noun string) string {
	if n == 1 {
		return fmt.Sprint(n, " ", noun)
	}
	return fmt.Sprint(n, " ", noun, "s")
}

// display fills event with the content of a display, with references to blobs in the place of payloads
// over contract.InlineMIMEBytes. It reports whether that is an event: no relay accepts one with 100,000
// MIME types, or of over contract.MaxEventBytes, as a faulty library makes them, and a chunked run could
// not continue past it.
func (r *run) display(event *contract.Event, d jupyter.DisplayData) (ok bool) {
	if len(d.Data)+d.OmittedTypes > maxTypes || len(d.Metadata) > contract.MaxEventBytes || len(d.Transient.DisplayID) > maxDisplayID {
		return false
	}
	var omitted cuts
	event.Data = make(map[string]json.RawMessage, len(d.Data))
	for _, mime := range slices.Sorted(maps.Keys(d.Data)) {
		raw := d.Data[mime]
		if len(raw) <= contract.InlineMIMEBytes {
			event.Data[mime] = bytes.Clone(raw) // the message's frame is reused
			continue
		}
		blob, err := r.record.PutBlob(int64(len(raw)), func(w io.Writer) error { return decodePayload(w, mime, raw) })
		if err != nil {
			omitted.add("%s of %s, which could not be kept: %v", mime, counted(len(raw), "byte"), err)
			continue
		}
		event.Data[mime], _ = json.Marshal(contract.BlobRef{Blob: blob})
	}
	if len(d.Metadata) > 0 && !bytes.Equal(d.Metadata, []byte("{}")) {
		event.Metadata = bytes.Clone(d.Metadata)
	}
	event.DisplayID, event.ExecutionCount, event.Cut = d.Transient.DisplayID, d.ExecutionCount, omitted.String()
	line, err := json.Marshal(event)
	return err == nil && len(line) < contract.MaxEventBytes-maxAdded
}

// maxAdded is more than what is added to an event: its offset, and a display_id that has the id of a widget.
const maxAdded = 1 << 10

// failure fills event with an exception. One that is too long for an event is kept whole as a
// payload, without IPython's colours.
func (r *run) failure(event *contract.Event, e jupyter.ErrorContent) {
	bounded, cut := boundError(e.EName, e.EValue, e.Traceback)
	event.EName, event.EValue, event.Traceback = bounded.EName, bounded.EValue, bounded.Traceback
	r.displayed = &bounded
	if cut == "" {
		return
	}
	whole := strings.Join(e.Traceback, "\n")
	if whole == "" {
		whole = e.EName + ": " + e.EValue
	}
	whole = colours.ReplaceAllString(whole, "")
	blob, err := r.record.PutBlob(int64(len(whole)), func(w io.Writer) error {
		_, err := io.WriteString(w, whole)
		return err
	})
	if err != nil {
		event.Cut = fmt.Sprintf("%s, which could not be kept: %v", cut, err)
		return
	}
	ref, _ := json.Marshal(contract.BlobRef{Blob: blob})
	event.Data = map[string]json.RawMessage{"text/plain": ref}
}

// colours are what IPython puts into a traceback.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// boundError shortens an error, and a traceback of more than contract.MaxErrorEvent to its last frames,
// because they say most. cut lists what is omitted.
func boundError(ename, evalue string, traceback []string) (e contract.ExecutionError, cut string) {
	var omitted cuts
	e.EName, e.EValue, e.Traceback = journal.Shorten(ename, maxErrorName), journal.Shorten(evalue, maxErrorValue), traceback
	if n := len(ename) + len(evalue) - len(e.EName) - len(e.EValue); n > 0 {
		omitted.add("%s of the error's text", counted(n, "byte"))
	}
	missing, room := len(traceback), contract.MaxErrorEvent
	for missing > 0 && len(traceback[missing-1]) <= room {
		missing--
		room -= len(traceback[missing])
	}
	if missing == 0 {
		return e, omitted.String()
	}
	tail := traceback[missing:]
	if len(tail) == 0 { // the message alone is too long
		missing--
		tail = []string{journal.Shorten(traceback[missing], contract.MaxErrorEvent)}
	}
	gap := counted(total(traceback)-total(tail), "byte") + " of the traceback"
	if missing > 0 {
		gap = counted(missing, "frame") + " and " + gap
	}
	omitted.add("%s", gap)
	e.Traceback = append([]string{"[… " + gap + " are left out here …]"}, tail...)
	return e, omitted.String()
}

func total(frames []string) (bytes int) {
	for _, frame := range frames {
		bytes += len(frame)
	}
	return bytes
}
