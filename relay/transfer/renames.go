package transfer

import (
	"fmt"
	"path"
	"strings"

	"colabrelay/shared/contract"
)

// renames lists the files and folders of a download whose names on the laptop and on the
// VM differ, because the name was taken or cannot be a local one.
type renames struct {
	lines []string // at most maxRenamed
	more  int
}

// add records that remote is called local, if the names differ. top is the local folder of
// the download.
func (r *renames) add(remote contract.File, top, local string) {
	switch {
	case contract.EscapeName(path.Base(local)) == remote.Name:
	case len(r.lines) < maxRenamed:
		r.lines = append(r.lines, fmt.Sprintf("%q has a different name here: %q", remote.Path, strings.TrimPrefix(local, top+"/")))
	default:
		r.more++
	}
}

func (r *renames) notes() []string {
	if r.more == 0 {
		return r.lines
	}
	return append(r.lines, fmt.Sprintf("differing names that are not listed here: %d", r.more))
}
