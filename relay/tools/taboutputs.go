package tools

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"colabrelay/relay/output"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
)

// Bounds of the outputs of a cell that ran in the tab.
const (
	maxTabOutputs = 10_000
	maxTabTypes   = 100 // MIME types of one output
)

// tabOutputs are the outputs of a cell in the tab, as events of an execution would show them.
type tabOutputs struct {
	large []payloadOf // as an executor keeps large payloads apart from their events
}

// payloadOf is the payload of one MIME type.
type payloadOf struct {
	mime string
	raw  json.RawMessage
}

// errNoPayload is the error of a payload that names another one, as only an executor's may.
var errNoPayload = errors.New("its payload is missing")

// fetch writes a large payload. It is an output.Fetch.
func (t *tabOutputs) fetch(ctx context.Context, blob contract.Blob, w io.Writer) error {
	if blob.Number < 0 || blob.Number >= len(t.large) {
		return errNoPayload
	}
	return output.WritePayload(ctx, t.large[blob.Number].mime, t.large[blob.Number].raw, noPayload, w)
}

// noPayload is the output.Fetch where payloads cannot be kept apart.
func noPayload(context.Context, contract.Blob, io.Writer) error { return errNoPayload }

// addTo adds the JSON list of a cell's outputs to a collector.
func (t *tabOutputs) addTo(col *render.Collector, list json.RawMessage) {
	count, further := int64(0), 0
	eachItem(list, func(output []byte) {
		if count == maxTabOutputs {
			further++
			return
		}
		ev := t.event(output)
		ev.Offset = count
		count++
		col.Add(ev)
	})
	if further > 0 {
		col.Add(contract.Event{Offset: count, Type: contract.EventStream, Cut: plain.Count(further, "further output")})
	}
}

// event is what an executor sends for an output.
func (t *tabOutputs) event(output []byte) (ev contract.Event) {
	eachMember(output, func(key string, value []byte) {
		switch key {
		case "output_type":
			ev.Type = contract.EventType(shortString(value))
		case "name":
			ev.Name = shortString(value)
		case "text":
			ev.Text = wholeText(value)
		case "ename":
			ev.EName = wholeText(value)
		case "evalue":
			ev.EValue = wholeText(value)
		case "traceback":
			_ = json.Unmarshal(value, &ev.Traceback) // of another type: the name and the message remain
		case "data":
			ev.Data = t.bundle(value)
		}
	})
	return ev
}

// bundle reads a MIME bundle, and keeps large payloads apart.
func (t *tabOutputs) bundle(data []byte) map[string]json.RawMessage {
	bundle := map[string]json.RawMessage{}
	eachMember(data, func(mime string, payload []byte) {
		switch {
		case len(bundle) == maxTabTypes:
		case len(payload) > contract.InlineMIMEBytes:
			bundle[mime] = encode(contract.BlobRef{Blob: contract.Blob{Number: len(t.large), SHA256: "-", Bytes: int64(len(payload))}})
			t.large = append(t.large, payloadOf{mime, payload})
		default:
			bundle[mime] = payload
		}
	})
	return bundle
}

// wholeText returns a text that is one string or a list of lines; of other JSON, nothing.
func wholeText(raw []byte) (text string) {
	var lines []string
	if json.Unmarshal(raw, &text) == nil || json.Unmarshal(raw, &lines) != nil {
		return text
	}
	return strings.Join(lines, "")
}
