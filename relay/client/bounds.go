package client

import (
	"fmt"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// maxItems bounds every array and object of an answer. 15 MiB of {} would decode into 3 GB of
// events, because an item of two bytes becomes a struct of hundreds. The bound is the largest
// number of events that fit into an answer, as each takes at least 64 bytes.
const maxItems = contract.MaxReadBytes / 64

// fewerItems are lower bounds that the contract sets for some arrays, by the names of their
// fields.
var fewerItems = map[string]int{
	"executions": contract.MaxListExecutions,
	"missing":    contract.MaxUploadRanges,
	"files":      contract.MaxManifestFiles, // the longest list of that name
}

// CheckItems refuses JSON in which an array or object has more items than maxItems, or than
// most allows for its field. It reads the text once without storing any of it, so it can run
// before decoding. Text that is not JSON is left to the decoder.
func CheckItems(text []byte, most map[string]int) error {
	return (&itemScan{text: text, most: most}).run()
}

// itemScan is one reading of a JSON text.
type itemScan struct {
	text []byte
	most map[string]int
	open []container
	name []byte // of the field whose value comes next
}

// container is an array or object whose end has not been read.
type container struct {
	name  []byte // of its field; nil for the item of an array
	limit int
	items int // commas so far
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
				return fmt.Errorf("%w: nested over %d levels deep", bounded.ErrTooLong, maxNesting)
			}
			s.open = append(s.open, container{s.name, s.limit(), 0})
			s.name = nil
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

// limit returns how many items the container that starts now may have.
func (s *itemScan) limit() int {
	if n, ok := s.most[string(s.name)]; ok && s.name != nil {
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
		return fmt.Errorf("%w: %.40q has over %d items", bounded.ErrTooLong, at.name, at.limit)
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
