package contract

import (
	"fmt"
	"strings"
)

// Instance names one running executor, as HeaderInstance does: in every signed answer
// the executor that gave it, in every request but GET the one it is meant for. Both
// are signed, so that a captured request works on no other executor and not after a
// restart.
type Instance struct {
	ID    string // instance_id: made once for a state dir, so another VM has another one
	Start string // made by each executor process, at random
}

// MaxInstancePart bounds each of the two parts, in bytes. The programs' own are 36 and 26.
const MaxInstancePart = 64

// String is the header's value.
func (i Instance) String() string { return i.ID + "/" + i.Start }

// IsZero reports whether i names nothing.
func (i Instance) IsZero() bool { return i == Instance{} }

// ParseInstance reads the header's value: two parts of 1 to MaxInstancePart characters
// of A-Z a-z 0-9 . _ - with a slash between. The error does not repeat text, which may
// come from anybody.
func ParseInstance(text string) (Instance, error) {
	id, start, ok := strings.Cut(text, "/")
	if !ok || !isInstancePart(id) || !isInstancePart(start) {
		return Instance{}, fmt.Errorf("%s is not of the form <instance id>/<start id>", HeaderInstance)
	}
	return Instance{ID: id, Start: start}, nil
}

func isInstancePart(text string) bool {
	if text == "" || len(text) > MaxInstancePart {
		return false
	}
	for _, c := range []byte(text) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
