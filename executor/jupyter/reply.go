package jupyter

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
)

// Bounds of what is decoded of one reply or error: code in the kernel can write these messages
// itself, and an item of two bytes of JSON takes a hundred times as much when it is decoded.
const (
	maxExpressions = 100
	maxPayloads    = 100
	// maxTraceback bounds the traceback that is decoded, in bytes of JSON.
	maxTraceback      = 32 << 20
	maxTracebackItems = 10_000
)

// Expressions is the values of user_expressions, the first maxExpressions. The executor asks
// for one or two and shows none of them, so the rest are not counted.
type Expressions map[string]json.RawMessage

// UnmarshalJSON copies the values: they outlive raw.
func (e *Expressions) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	*e = Expressions{}
	return fields(raw, func(key string, value json.RawMessage) {
		if len(*e) < maxExpressions {
			(*e)[key] = bytes.Clone(value)
		}
	})
}

// Payload is a request of an execute_reply to the front end. The source page asks it to
// show data.
type Payload struct {
	Source  string
	Display DisplayData // only what the payload has under data
}

// UnmarshalJSON copies the data: it outlives raw.
func (p *Payload) UnmarshalJSON(raw []byte) error {
	*p = Payload{Display: DisplayData{Data: map[string]json.RawMessage{}}}
	var failed error
	keep := func(err error) { failed = cmp.Or(failed, err) }
	err := fields(bytes.Clone(raw), func(key string, value json.RawMessage) {
		switch key {
		case "source":
			keep(json.Unmarshal(value, &p.Source))
		case "data":
			keep(fields(value, p.Display.add))
		}
	})
	return cmp.Or(err, failed)
}

// Payloads is the payloads of a reply, the first maxPayloads.
type Payloads struct {
	Items        []Payload
	Omitted      int
	OmittedBytes int64 // of JSON
}

// UnmarshalJSON decodes the first maxPayloads and counts the rest.
func (p *Payloads) UnmarshalJSON(raw []byte) error {
	*p = Payloads{}
	var failed error
	err := items(raw, func(item json.RawMessage) {
		if len(p.Items) >= maxPayloads {
			p.Omitted++
			p.OmittedBytes += int64(len(item))
			return
		}
		var one Payload
		failed = cmp.Or(failed, one.UnmarshalJSON(item))
		p.Items = append(p.Items, one)
	})
	return cmp.Or(err, failed)
}

// Traceback is the frames of a traceback as texts.
type Traceback []string

// UnmarshalJSON replaces a traceback over maxTraceback by one line that states its size, and
// the middle of one over maxTracebackItems by one that states how many frames it had.
func (t *Traceback) UnmarshalJSON(raw []byte) error {
	if len(raw) > maxTraceback {
		*t = Traceback{fmt.Sprintf("[… a traceback of %d bytes is omitted …]", len(raw))}
		return nil
	}
	*t = nil
	total := 0
	if err := items(raw, func(json.RawMessage) { total++ }); err != nil {
		return err
	}
	omitted, n := max(total-maxTracebackItems, 0), 0
	var failed error
	_ = items(raw, func(item json.RawMessage) {
		if first := maxTracebackItems / 2; n < first || n >= first+omitted {
			var frame string
			failed = cmp.Or(failed, json.Unmarshal(item, &frame))
			*t = append(*t, frame)
		} else if n == first {
			*t = append(*t, fmt.Sprintf("[… %d frames of the traceback are omitted …]", omitted))
		}
		n++
	})
	return failed
}
