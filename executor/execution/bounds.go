package execution

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"colabrelay/executor/journal"
	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
)

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
