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
	"regexp"
	"slices"
	"strings"

	"colabrelay/executor/journal"
	"colabrelay/executor/jupyter"
	"colabrelay/shared/contract"
)

// Bounds of the parts of one event, in bytes unless noted. Together they keep an event
// under contract.MaxEventBytes as JSON, where <, > and & take six bytes each. Without them,
// a display by a faulty library (100,000 MIME types, a key of 10 MB) made an answer that no
// relay accepts, and a chunked run could not continue past it.
const (
	maxTypes      = 64        // MIME types of one display
	maxTypeName   = 200       // of a MIME type
	maxInline     = 512 << 10 // of a display's inline payloads; the others become blobs
	maxMetadata   = 128 << 10
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

// display fills event with the content of a display, within the bounds.
func (r *run) display(event *contract.Event, d jupyter.DisplayData) {
	var omitted cuts
	event.Data = r.bundle(d.Data, &omitted)
	if d.OmittedTypes > 0 {
		omitted.add("%s of %s", counted(d.OmittedTypes, "more MIME type"), counted(d.OmittedBytes, "byte"))
	}
	switch {
	case len(d.Metadata) == 0 || bytes.Equal(d.Metadata, []byte("{}")):
	case encodedSize(d.Metadata) > maxMetadata:
		omitted.add("metadata of %d bytes", len(d.Metadata))
	default:
		event.Metadata = bytes.Clone(d.Metadata)
	}
	event.DisplayID = d.Transient.DisplayID
	if n := len(event.DisplayID); n > maxDisplayID { // updates must still find their display
		sum := sha256.Sum256([]byte(event.DisplayID))
		event.DisplayID = "sha256:" + hex.EncodeToString(sum[:])
		omitted.add("a display_id of %d bytes, which its SHA-256 replaces", n)
	}
	event.ExecutionCount = d.ExecutionCount
	event.Cut = omitted.String()
}

// bundle returns a copy of data, in which references to blobs replace the payloads that
// are over contract.InlineMIMEBytes or do not fit into the event.
func (r *run) bundle(data map[string]json.RawMessage, omitted *cuts) map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, min(len(data), maxTypes))
	room := maxInline
	types, size := 0, 0
	for _, mime := range slices.SortedFunc(maps.Keys(data), byUse) {
		raw := data[mime]
		if len(out) == maxTypes || len(mime) > maxTypeName {
			types, size = types+1, size+len(mime)+len(raw)
			continue
		}
		if n := encodedSize(raw); len(raw) <= contract.InlineMIMEBytes && n <= room {
			out[mime] = bytes.Clone(raw) // the message's frame is reused
			room -= n
			continue
		}
		blob, err := r.record.PutBlob(int64(len(raw)), func(w io.Writer) error { return decodePayload(w, mime, raw) })
		if err != nil {
			omitted.add("%s of %s, which could not be kept: %v", mime, counted(len(raw), "byte"), err)
			continue
		}
		out[mime], _ = json.Marshal(contract.BlobRef{Blob: blob})
	}
	if types > 0 {
		omitted.add("%s of %s", counted(types, "more MIME type"), counted(size, "byte"))
	}
	return out
}

// byUse orders MIME types by how much a reader needs them.
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

// encodedSize is the size of raw after encoding/json has escaped <, >, & and the two line
// separators of Unicode.
func encodedSize(raw []byte) int {
	n := len(raw)
	for _, escaped := range []string{"<", ">", "&"} {
		n += 5 * bytes.Count(raw, []byte(escaped))
	}
	return n + 3*(bytes.Count(raw, []byte("\u2028"))+bytes.Count(raw, []byte("\u2029")))
}

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

// boundError shortens an error, and a traceback of more than contract.MaxErrorEvent to its first
// and last frames, because they say most. cut lists what is omitted.
func boundError(ename, evalue string, traceback []string) (e contract.ExecutionError, cut string) {
	const half = contract.MaxErrorEvent / 2
	var omitted cuts
	e.EName, e.EValue = journal.Shorten(ename, maxErrorName), journal.Shorten(evalue, maxErrorValue)
	if n := len(ename) + len(evalue) - len(e.EName) - len(e.EValue); n > 0 {
		omitted.add("%s of the error's text", counted(n, "byte"))
	}
	if total(traceback) <= contract.MaxErrorEvent {
		e.Traceback = traceback
		return e, omitted.String()
	}
	head, end := 0, len(traceback)
	for room := half; len(traceback[head]) <= room; head++ {
		room -= len(traceback[head])
	}
	for room := half; end > head && len(traceback[end-1]) <= room; {
		end--
		room -= len(traceback[end])
	}
	tail, missing := traceback[end:], end-head
	if len(tail) == 0 { // the message alone is too long
		tail, missing = []string{journal.Shorten(traceback[end-1], half)}, missing-1
	}
	size := total(traceback[head:]) - total(tail)
	gap := counted(size, "byte") + " of the traceback"
	if missing > 0 {
		gap = counted(missing, "frame") + " and " + gap
	}
	omitted.add("%s", gap)
	e.Traceback = slices.Concat(traceback[:head], []string{"[… " + gap + " are left out here …]"}, tail)
	return e, omitted.String()
}

func total(frames []string) (bytes int) {
	for _, frame := range frames {
		bytes += len(frame)
	}
	return bytes
}
