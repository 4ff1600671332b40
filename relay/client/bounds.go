package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
)

// maxItems bounds every array and object of an answer, whatever its name and depth. It is the
// largest number of events that fit into an answer, as each takes at least 64 bytes.
const maxItems = contract.MaxReadBytes / leastEvent

// An answer has at most one event for each leastEvent bytes of its text, and fewEvents more:
// 256 KiB of {} would decode into 87,000 events.
const (
	leastEvent = 64
	fewEvents  = 1000
)

const (
	// maxDecoded bounds what the items of an answer take when they are decoded, in bytes: 15 MiB
	// of {} would become 3 GB of events, because an item of two bytes becomes a struct of hundreds.
	maxDecoded = 48 << 20
	// freeDecoded is up to what an answer takes no turn for that.
	freeDecoded = 1 << 20
)

// Errors of a text whose form exceeds a bound. Like one that is too long, it is not read.
var (
	errTooDeep = fmt.Errorf("%w: nested over %d levels deep", bounded.ErrTooLong, maxNesting)
	errTooMany = fmt.Errorf("%w: too many items", bounded.ErrTooLong)
	errTooMuch = fmt.Errorf("%w: more events than were asked for", bounded.ErrTooLong)
)

// excess says, after the words "the answer", which bound it exceeds; maxBytes is the one of its
// length.
func excess(err error, maxBytes int64) string {
	switch {
	case errors.Is(err, errTooDeep):
		return fmt.Sprintf("is nested over %d levels deep", maxNesting)
	case errors.Is(err, errTooMany):
		return "has more items than an executor may send"
	case errors.Is(err, errTooMuch):
		return "has more events than were asked for"
	}
	return fmt.Sprintf("is longer than %d MiB", maxBytes>>20)
}

// CheckItems refuses JSON in which an array or object has more items than maxItems, or than
// most allows for its field, in whatever case; "" is for those of all other fields, and of none.
// It reads the text once without storing any of it, so it can run before decoding. Text that is
// not JSON is left to the decoder.
func CheckItems(text []byte, most map[string]int) error {
	folded := make(map[string]int, len(most))
	for name, n := range most {
		folded[fold(name)] = n
	}
	return (&itemScan{text: text, most: folded}).run()
}

// decode decodes text, unless it has more items than an executor may send. A text that takes much
// memory then waits for the turn of ctx's call.
func decode(ctx context.Context, text []byte, into any) error {
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
	most  map[string]int // by folded name
	root  *shape
	bytes int64 // that the items take, as far as their shape says
	open  []container
	name  []byte // of the field whose value comes next, as it stands in the text
}

// container is an array or object whose end has not been read.
type container struct {
	*shape        // nil: it stays text
	name   []byte // of its field; nil for the item of an array
	limit  int
	items  int // commas so far
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
				return errTooDeep
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
	s.open = append(s.open, container{shape: of, name: s.name, limit: s.limit(of)})
	s.name = nil
	if of != nil {
		return s.take(of.start + of.bytes)
	}
	return nil
}

// take counts bytes of memory.
func (s *itemScan) take(bytes int64) error {
	if s.bytes += bytes; s.bytes > maxDecoded {
		return fmt.Errorf("%w: they take over %d MiB", errTooMany, maxDecoded>>20)
	}
	return nil
}

// limit returns how many items the container that begins now may have.
func (s *itemScan) limit(of *shape) int {
	switch {
	case of != nil && of.limit > 0:
		return of.limit
	case of != nil && of.events:
		return min(maxItems, len(s.text)/leastEvent+fewEvents)
	case s.most == nil:
		return maxItems
	}
	if n, ok := s.most[fold(unquoted(s.name))]; ok {
		return n
	}
	if n, ok := s.most[""]; ok {
		return n
	}
	return maxItems
}

func (s *itemScan) comma() error {
	s.name = nil
	if len(s.open) == 0 {
		return nil
	}
	at := &s.open[len(s.open)-1]
	if at.items++; at.items >= at.limit { // n items have n-1 commas
		return fmt.Errorf("%w: %.40q has over %d", errTooMany, at.name, at.limit)
	}
	if at.shape != nil {
		return s.take(at.bytes)
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
	case !possibleOffsets(e):
		return breaksBounds("the executor's answer has events at offsets that no log has", nil)
	case errorBytes(e.Error) > maxError:
		return breaksBounds("the executor's answer has a longer error than an executor keeps of a run", nil)
	}
	return checkAsked(e, contract.MaxReadBytes)
}

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
	return breaksBounds("the executor's answer "+excess(errTooMuch, maxAnswerBytes), errTooMuch)
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
