package client

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"colabrelay/relay/plain"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/lazy"
	"colabrelay/shared/memory"
)

const (
	// maxDecoded bounds what all items of an answer take when they are decoded, in bytes: 15 MiB
	// of {} would become 3 GB of events, because an item of two bytes becomes a struct of hundreds.
	// perByte bounds the same for each byte of the text, beside freeDecoded, because callers hold
	// what becomes of a small answer without a turn. An honest item takes a tenth of it or half.
	maxDecoded = 48 << 20
	perByte    = 16
	// freeDecoded is up to what an answer takes no turn for that.
	freeDecoded = 1 << 20
)

// errTooMuch is the error of a text that holds more than an executor may send. Like one that is too
// long, it is not read.
var errTooMuch = fmt.Errorf("%w: more than an executor may send", bounded.ErrTooLong)

// tooMuch is the message about such an answer.
const tooMuch = "the executor's answer is longer, or holds more, than an executor may send"

// Decode decodes what an executor or the code in its kernel sent, unless it has more items than an
// executor may send. It reads the text once before, without storing any of it. A text that takes much
// memory then waits for the turn of ctx's call.
func Decode(ctx context.Context, text []byte, into any) error {
	s := itemScan{text: text, root: shapeOf(reflect.TypeOf(into))}
	if err := s.run(); err != nil {
		return err
	}
	if s.bytes > freeDecoded {
		held, own := memory.Of(ctx)
		if own {
			defer held.Done()
		}
		if err := held.Take(ctx, memory.Decoding); err != nil {
			return err
		}
	}
	return json.Unmarshal(text, into)
}

// itemScan is one reading of a JSON text.
type itemScan struct {
	text  []byte
	root  *shape
	bytes int64    // that the items take, as far as their shape says
	open  []*shape // of the arrays and objects whose end has not been read; nil for one that stays text
	name  []byte   // of the field whose value comes next, as it stands in the text
}

// maxNesting bounds the memory of a scan; encoding/json refuses deeper text itself.
const maxNesting = 10_000

func (s *itemScan) run() error {
	for i := 0; i < len(s.text); i++ {
		switch s.text[i] {
		case '"':
			from := i + 1
			for i = from; i < len(s.text) && s.text[i] != '"'; i++ {
				if s.text[i] == '\\' {
					i++
				}
			}
			s.name = s.text[from:min(i, len(s.text))]
		case '{', '[':
			if len(s.open) == maxNesting {
				return errTooMuch
			}
			if err := s.begin(s.text[i] == '{'); err != nil {
				return err
			}
		case '}', ']':
			if len(s.open) > 0 {
				s.open = s.open[:len(s.open)-1]
			}
		case ',':
			if err := s.comma(); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin begins an array or object.
func (s *itemScan) begin(object bool) error {
	of := s.root
	if n := len(s.open); n > 0 {
		of = s.open[n-1].within(s.name)
	}
	if of != nil && of.object != object {
		of = nil // the decoder refuses it
	}
	s.open = append(s.open, of)
	s.name = nil
	if of != nil {
		return s.take(of.start + of.bytes)
	}
	return nil
}

// take counts bytes of memory.
func (s *itemScan) take(bytes int64) error {
	if s.bytes += bytes; s.bytes > min(maxDecoded, freeDecoded+perByte*int64(len(s.text))) {
		return errTooMuch
	}
	return nil
}

func (s *itemScan) comma() error {
	s.name = nil
	if n := len(s.open); n > 0 && s.open[n-1] != nil {
		return s.take(s.open[n-1].bytes)
	}
	return nil
}

// maxOffset bounds offsets of events, and how many of them a gap stands for. It is the largest
// whole number that every reader of JSON keeps exactly, and sums of two do not overflow.
const maxOffset = 1 << 53

// possibleOffsets reports whether an execution's offsets are within maxOffset. A reader adds to
// them: one that is near the largest number would become negative.
func possibleOffsets(e *contract.Execution) bool {
	possible := func(n int64) bool { return n >= 0 && n <= maxOffset }
	for i := range e.Events {
		if ev := &e.Events[i]; !possible(ev.Offset) || !possible(ev.Events) || !possible(ev.Bytes) {
			return false
		}
	}
	return possible(e.NextOffset)
}

// checkExecution refuses what no executor answers about an execution.
func checkExecution(e *contract.Execution) error {
	switch {
	case !possibleOffsets(e), !plausibleTime(e.StartedAt), !plausibleTime(e.FinishedAt):
		return breaksBounds("the executor's answer has impossible times or offsets", nil)
	case errorBytes(e.Error) > maxError:
		return breaksBounds(tooMuch, errTooMuch)
	}
	return checkAsked(e, contract.MaxReadBytes)
}

// plausibleTime reports whether a time, which may be missing, can be written as JSON in any time zone.
func plausibleTime(t *time.Time) bool { return t == nil || t.Year() > 1 && t.Year() < 9999 }

// eventBytes is about how many bytes the events of an answer take.
func eventBytes(events []contract.Event) (n int64) {
	for i := range events {
		n += int64(len(events[i].Text)) + 100
		for _, payload := range events[i].Data {
			n += int64(len(payload))
		}
	}
	return n
}

// checkAsked refuses an answer with more events than so many bytes, and one that is larger. Calls hold
// events while they take them in, so what was not asked for is not held.
func checkAsked(e *contract.Execution, asked int64) error {
	if eventBytes(e.Events) <= asked+contract.MaxEventBytes {
		return nil
	}
	return breaksBounds(tooMuch, errTooMuch)
}

// maxError bounds the error of an execution that is read, which is kept as long as somebody waits
// for more. An executor keeps contract.MaxErrorEvent of it, of which JSON may change characters.
const maxError = 4 * contract.MaxErrorEvent

// errorBytes is about what an error takes.
func errorBytes(e *contract.ExecutionError) (n int) {
	if e == nil {
		return 0
	}
	n = len(e.EName) + len(e.EValue)
	for _, frame := range e.Traceback {
		n += len(frame) + 16
	}
	return n
}

// shape says what a decoder makes of an array or object: which items become which structs, and
// how much memory they take. What becomes text again, such as a payload, has no shape.
type shape struct {
	object bool
	fields map[string]*shape // of a struct, those that have a shape, by folded name
	item   *shape            // of an array or a map; nil if its items are neither arrays nor objects
	bytes  int64             // of one item
	start  int64             // bytes of an empty one
}

const (
	// slack is how much more memory a list takes while it grows than its items do.
	slack = 2
	// mapStart and mapItem are what a map takes, and each of its entries besides key and value.
	mapStart = 400
	mapItem  = 80
)

var (
	shapes    sync.Map // of *shape, by reflect.Type
	rawJSON   = reflect.TypeFor[json.RawMessage]()
	decodable = reflect.TypeFor[json.Unmarshaler]()
)

// shapeOf returns the shape of what decodes into t; nil if it has none.
func shapeOf(t reflect.Type) *shape {
	if known, ok := shapes.Load(t); ok {
		return known.(*shape)
	}
	s := newShape(t)
	shapes.Store(t, s)
	return s
}

func newShape(t reflect.Type) *shape {
	if t == rawJSON || reflect.PointerTo(t).Implements(decodable) {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return newShape(t.Elem())
	case reflect.Slice, reflect.Array:
		return &shape{item: shapeOf(t.Elem()), bytes: slack * sizeOf(t.Elem())}
	case reflect.Map:
		return &shape{object: true, item: shapeOf(t.Elem()), bytes: mapItem + sizeOf(t.Key()) + sizeOf(t.Elem()), start: mapStart}
	case reflect.Struct:
		s := &shape{object: true, fields: map[string]*shape{}}
		s.addFields(t)
		return s
	}
	return nil
}

// addFields adds the fields of a struct, and those of the structs that it embeds.
func (s *shape) addFields(t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			s.addFields(f.Type)
			continue
		case name == "":
			name = f.Name
		}
		if of := shapeOf(f.Type); of != nil {
			s.fields[fold(name)] = of
		}
	}
}

// sizeOf returns the size of a value with what its pointers lead to.
func sizeOf(t reflect.Type) int64 {
	if t.Kind() == reflect.Pointer {
		return int64(t.Size()) + sizeOf(t.Elem())
	}
	size := int64(t.Size())
	for i := 0; t.Kind() == reflect.Struct && i < t.NumField(); i++ {
		if f := t.Field(i).Type; f.Kind() == reflect.Pointer {
			size += int64(f.Elem().Size())
		}
	}
	return size
}

// fold returns the form of a name that all names share which encoding/json takes for the same
// field: it ignores case, as Unicode folds it.
func fold(name string) string { return strings.ToLower(strings.ToUpper(name)) }

// within returns the shape of the array or object that begins in one of shape s, in the field
// with the name that stands in the text.
func (s *shape) within(name []byte) *shape {
	if s == nil {
		return nil
	}
	if s.fields == nil {
		return s.item
	}
	if f, ok := s.fields[string(name)]; ok {
		return f
	}
	return s.fields[fold(unquoted(name))]
}

// unquoted returns a name whose quotes are gone, without escapes.
func unquoted(name []byte) string {
	for _, c := range name {
		if c == '\\' {
			var plain string
			if json.Unmarshal([]byte(`"`+string(name)+`"`), &plain) == nil {
				return plain
			}
			break
		}
	}
	return string(name)
}

// rules say how the strings of an answer are cleaned before anybody sees them: each becomes
// one plain line, except for these fields.
var rules = map[string]plain.Rule{
	"": plain.Line,
	// Texts of several lines.
	"EValue": plain.Text, "Traceback": plain.Text, "Preview": plain.Text,
	"Status": status,
	// Calls hold many of these while they wait.
	"StepID": word, "JobID": word, "KernelID": word, "Earlier": word, "State": word, "Cause": word,
	// People paste commands with this id into a shell.
	"ExecutionID": executionID,
	// Output of the user's code is cleaned when it is rendered, by relay/render or for a
	// terminal.
	"Events": nil,
	// Names of files and of their states must go back to the executor, and to the laptop's
	// disk, unchanged. Code that shows one cleans it.
	"Files": nil, "Path": nil, "ETag": nil, "File": nil,
}

// clean cleans the strings of an answer.
func clean(answer any) { plain.Deep(answer, rules) }

// statusForm matches every status of the contract, and nothing that a person or a model would take
// for a sentence.
var statusForm = lazy.Regexp(`^[a-z_]{0,17}$`)

// status returns what may be a status, or "unknown" for any other text.
func status(s string) string {
	if !statusForm().MatchString(s) {
		return "unknown"
	}
	return s
}

// word is an id or a state as one plain line. No executor's is longer.
func word(s string) string { return plain.Clip(s, contract.MaxKernelIDLen) }

// executionID returns an id that an executor may have created, or else nothing.
func executionID(id string) string {
	if !validID(id) || id[0] == '-' {
		return ""
	}
	return id
}

// versionForm matches the version of a release.
var versionForm = lazy.Regexp(`^[0-9A-Za-z][0-9A-Za-z.+_-]{0,39}$`)

// release returns an executor's version if it looks like one.
func release(version string) string {
	if versionForm().MatchString(version) {
		return version
	}
	return "of unknown version"
}

// validID reports whether an executor may have created the id.
func validID(id string) bool {
	return contract.RequestIDPattern().MatchString(id) && strings.Trim(id, ".") != ""
}
