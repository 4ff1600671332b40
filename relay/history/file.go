package history

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"time"
	"unicode/utf8"

	"colabrelay/shared/contract"
	"colabrelay/shared/ranges"
)

// A run's files, in the folder of the history. KEY is keyOf.
//
//	KEY.ndjson         a line with the head, then events and states; at most half of a run's bytes
//	KEY.tail.ndjson    later events and states; at most a quarter
//	KEY.tail-1.ndjson  what KEY.tail.ndjson contained when it was full
//	KEY.SHA256.blob    a payload that was fetched
const (
	headSuffix = ".ndjson"
	tailSuffix = ".tail.ndjson"
	oldSuffix  = ".tail-1.ndjson"
	blobSuffix = ".blob"
)

// suffixes lists a run's text files in the order of their contents.
var suffixes = []string{headSuffix, oldSuffix, tailSuffix}

// keyOf names the files of an execution. An execution's id is unique on its instance only.
func keyOf(instance, id string) string {
	sum := sha256.Sum256([]byte(instance + "\x00" + id))
	return hex.EncodeToString(sum[:12])
}

var keyPattern = regexp.MustCompile(`^[0-9a-f]{24}$`)

// Bounds of a line and its parts. A longer event is not kept; longer texts of a state lose
// their end, because the event of an error has them too.
const (
	maxLine      = 12 << 20 // a head with contract.MaxBodyBytes of code that JSON escapes
	maxEventLine = 2 << 20
	maxStateText = 2000    // bytes
	maxOffset    = 1 << 53 // exact in JSON of any program
	maxTitle     = 200     // bytes of what is kept of code that a relay submitted for itself
)

// line is one line of a file. Exactly one field is set.
type line struct {
	Head  *head               `json:"run,omitempty"`
	Event *contract.Event     `json:"event,omitempty"`
	State *contract.Execution `json:"state,omitempty"`
}

// head is what is known of a run from its start.
type head struct {
	Version     int       `json:"version"`
	Runtime     string    `json:"runtime"`
	InstanceID  string    `json:"instance_id"`
	ExecutionID string    `json:"execution_id"`
	RequestID   string    `json:"request_id"`
	Recorded    time.Time `json:"recorded_at"` // by this laptop's clock
	// Internal marks a run of the relay's own code, such as a round of a chunked run. Its Code
	// is the first line only: the rest is a Python package.
	Internal bool   `json:"internal,omitempty"`
	Name     string `json:"name,omitempty"` // of the code, such as its file's
	Code     string `json:"code"`
	CodeCut  bool   `json:"code_cut,omitempty"` // Code is only its beginning
}

const version = 1

func headOf(r *report) head {
	h := head{
		Version: version, Runtime: r.runtime, InstanceID: r.instance, ExecutionID: r.e.ExecutionID,
		RequestID: r.submit.RequestID, Recorded: time.Now().UTC(), Name: shorten(r.submit.SourceName, maxTitle), Code: r.submit.Source,
	}
	if h.Code == "" {
		h.Code, h.Internal = r.submit.Code, r.submit.Unstored
	}
	if h.Internal {
		first, _, _ := bytes.Cut([]byte(h.Code), []byte("\n"))
		h.Code = shorten(string(first), maxTitle)
	}
	return h
}

// stateOf returns what a state line contains of an answer.
func stateOf(e contract.Execution) contract.Execution {
	e.Events, e.SessionMinutesLeft, e.Behind = nil, nil, nil
	e.Reason, e.CodePreview, e.SourceName = shorten(e.Reason, maxStateText), shorten(e.CodePreview, maxStateText), shorten(e.SourceName, maxTitle)
	if e.Error != nil {
		e.Error = &contract.ExecutionError{EName: shorten(e.Error.EName, maxStateText), EValue: shorten(e.Error.EValue, maxStateText)}
	}
	return e
}

// shorten returns at most most bytes of s, cut at a character.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// encode returns l with a line break, or nil if it cannot be encoded, as a time beyond the
// year 9999.
func encode(l line) []byte {
	text, err := json.Marshal(l)
	if err != nil {
		return nil
	}
	return append(text, '\n')
}

// rangeOf returns the offsets that an event stands for; ok is false for impossible ones.
func rangeOf(ev *contract.Event) (r contract.Range, ok bool) {
	r = contract.Range{Offset: ev.Offset, Length: 1}
	if ev.Type == contract.EventGap {
		r.Length = max(ev.Events, 1)
	}
	return r, r.Offset >= 0 && r.Offset < maxOffset && r.Length < maxOffset
}

// extend returns have with r. It may change have: unlike Add, it copies nothing for an r that
// follows the last range, as nearly all do.
func extend(have ranges.Set, r contract.Range) ranges.Set {
	if n := len(have); n > 0 && have[n-1].End() == r.Offset && r.Length > 0 {
		have[n-1].Length += r.Length
		return have
	}
	return have.Add(r)
}
