package transfer

import (
	"fmt"
	"path"
	"strings"

	"colabrelay/relay/plain"
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
	if contract.EscapeName(path.Base(local)) != remote.Name {
		r.addLine(fmt.Sprintf("%s has a different name here: %q", plain.QuoteName(remote.Path), strings.TrimPrefix(local, top+"/")))
	}
}

func (r *renames) addLine(line string) {
	if len(r.lines) == maxRenamed {
		r.more++
		return
	}
	r.lines = append(r.lines, line)
}

func (r *renames) notes() []string {
	if r.more == 0 {
		return r.lines
	}
	return append(r.lines, fmt.Sprintf("differing names that are not listed here: %d", r.more))
}
