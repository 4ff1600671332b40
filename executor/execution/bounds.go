package execution

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"colabrelay/executor/journal"
	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
)

// Bounds of the parts of one event, which together stay under contract.MaxEventBytes
// as JSON, where <, > and & take six bytes each. Without them one display of a
// library gone wrong (100,000 MIME types, a key of 10 MB) made an answer that no
// relay takes, and a chunked run never came past it.
const (
	maxTypes      = 64        // MIME types of one display
	maxTypeName   = 200       // bytes of one
	maxInline     = 512 << 10 // of a display's inline payloads; what is over becomes a blob
	maxMetadata   = 128 << 10
	maxDisplayID  = 1 << 10
	maxStreamName = 64
	maxFrames     = 400 // of a traceback, at each of its ends
	maxCutNote    = 1 << 10
)

// cuts gathers what was left out of one event.
type cuts []string

func (c *cuts) add(format string, args ...any) { *c = append(*c, fmt.Sprintf(format, args...)) }

func (c cuts) String() string { return journal.Shorten(strings.Join(c, "; "), maxCutNote) }

// display fills event with what a message shows, within the bounds.
func (r *run) display(event *contract.Event, d jupyter.DisplayData) {
	var left cuts
	event.Data = r.bundle(d.Data, &left)
	if d.OmittedTypes > 0 {
		left.add("%d more MIME types of %d bytes", d.OmittedTypes, d.OmittedBytes)
	}
	switch {
	case len(d.Metadata) == 0 || bytes.Equal(d.Metadata, []byte("{}")):
	case written(d.Metadata) > maxMetadata:
		left.add("metadata of %d bytes", len(d.Metadata))
	default:
		event.Metadata = bytes.Clone(d.Metadata)
	}
	event.DisplayID = d.Transient.DisplayID
	if n := len(event.DisplayID); n > maxDisplayID { // updates must still find their display
		sum := sha256.Sum256([]byte(event.DisplayID))
		event.DisplayID = "sha256:" + hex.EncodeToString(sum[:])
		left.add("a display_id of %d bytes, in whose place its SHA-256 stands", n)
	}
	event.ExecutionCount = d.ExecutionCount
	event.Cut = left.String()
}

// bundle returns data with each payload over contract.InlineMIMEBytes, or over the
// room of one event, replaced by a reference to a blob. What can't be kept is noted.
func (r *run) bundle(data map[string]json.RawMessage, left *cuts) map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, min(len(data), maxTypes))
	room := maxInline
	types, size := 0, 0
	for _, mime := range slices.SortedFunc(maps.Keys(data), byUse) {
		raw := data[mime]
		if len(out) == maxTypes || len(mime) > maxTypeName {
			types, size = types+1, size+len(mime)+len(raw)
			continue
		}
		if n := written(raw); len(raw) <= contract.InlineMIMEBytes && n <= room {
			out[mime] = bytes.Clone(raw) // the message's frame is used again
			room -= n
			continue
		}
		blob, err := r.record.PutBlob(int64(len(raw)), func(w io.Writer) error { return decodePayload(w, mime, raw) })
		if err != nil {
			left.add("%s of %d bytes was not kept: %v", mime, len(raw), err)
			continue
		}
		out[mime], _ = json.Marshal(contract.BlobRef{Blob: blob})
	}
	if types > 0 {
		left.add("%d more MIME types of %d bytes", types, size)
	}
	return out
}

// byUse orders MIME types: what must be kept first.
func byUse(a, b string) int {
	rank := func(mime string) int {
		switch {
		case strings.HasPrefix(mime, contract.OwnMIME):
			return 0
		case mime == "text/plain":
			return 1
		case strings.HasPrefix(mime, "text/"), strings.HasPrefix(mime, "image/"):
			return 2
		}
		return 3
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
}

// written is how many bytes encoding/json makes of raw: it escapes <, >, & and the
// two line separators of Unicode.
func written(raw []byte) int {
	n := len(raw)
	for _, escaped := range []string{"<", ">", "&"} {
		n += 5 * bytes.Count(raw, []byte(escaped))
	}
	return n + 3*(bytes.Count(raw, []byte("\u2028"))+bytes.Count(raw, []byte("\u2029")))
}

// boundError cuts an error to contract.MaxErrorEvent: the first and the last
// frames of a long traceback say most. What was left out is said in note.
func boundError(ename, evalue string, traceback []string) (e contract.ExecutionError, note string) {
	const part = contract.MaxErrorEvent / 4
	var left cuts
	e.EName, e.EValue = journal.Shorten(ename, part/4), journal.Shorten(evalue, part)
	if n := len(ename) + len(evalue) - len(e.EName) - len(e.EValue); n > 0 {
		left.add("%d bytes of the error's text", n)
	}
	head, rest := frames(traceback, part)
	slices.Reverse(rest)
	tail, middle := frames(rest, part)
	slices.Reverse(tail)
	slices.Reverse(middle)
	size := 0
	for _, frame := range traceback {
		size += len(frame)
	}
	for _, frame := range append(head[:len(head):len(head)], tail...) {
		size -= len(frame)
	}
	e.Traceback = head
	if len(middle) > 0 || size > 0 {
		said := fmt.Sprintf("%d frames and %d bytes of the traceback", len(middle), size)
		left.add("%s", said)
		e.Traceback = append(e.Traceback, "[… "+said+" are left out …]")
	}
	e.Traceback = append(e.Traceback, tail...)
	return e, left.String()
}

// frames takes as many frames from the start of all as fit into room, the last one
// cut; rest are those that don't.
func frames(all []string, room int) (fit, rest []string) {
	for i, frame := range all {
		if room <= 0 || i == maxFrames {
			return fit, slices.Clone(all[i:])
		}
		fit = append(fit, journal.Shorten(frame, room))
		room -= len(frame)
	}
	return fit, nil
}
