package contract

import (
	"fmt"
	"regexp"
	"strings"
)

// Instance identifies one executor process. It is the value of HeaderInstance: in a signed
// answer the executor that sent it, in a request other than GET the executor that it is
// intended for. It is signed, so that a captured request is not valid for another executor
// or after a restart.
type Instance struct {
	ID    string // instance_id: created with the state dir, so each VM has its own
	Start string // random, created by each executor process
}

// MaxInstancePart is how many bytes each of the two parts may have. The programs' ids have
// 36 and 26.
const MaxInstancePart = 64

// String is the header's value.
func (i Instance) String() string { return i.ID + "/" + i.Start }

// IsZero reports whether i is the zero Instance.
func (i Instance) IsZero() bool { return i == Instance{} }

// ParseInstance reads the header's value: two parts of 1 to MaxInstancePart characters
// of A-Z a-z 0-9 . _ - with a slash between them. The error does not quote text, which may
// come from anybody.
func ParseInstance(text string) (Instance, error) {
	if !instancePattern.MatchString(text) {
		return Instance{}, fmt.Errorf("%s is not of the form <instance id>/<start id>", HeaderInstance)
	}
	id, start, _ := strings.Cut(text, "/")
	return Instance{ID: id, Start: start}, nil
}

var instancePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}/[A-Za-z0-9._-]{1,64}$`)
