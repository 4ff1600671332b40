package transfer

import (
	"fmt"
	"path"
	"strings"

	"colabrelay/shared/contract"
)

// renames are the files and folders of a download that have another name on the laptop
// than on the VM: a different file has their name, or a local name can't be like that.
type renames struct {
	lines []string // notes of the first ones
	more  int
}

// add notes remote, which is called local, where the names differ. top is the local
// folder of the download.
func (r *renames) add(remote contract.File, top, local string) {
	switch {
	case contract.EscapeName(path.Base(local)) == remote.Name:
	case len(r.lines) < maxRenamed:
		r.lines = append(r.lines, fmt.Sprintf("%q has another name here: %q", remote.Path, strings.TrimPrefix(local, top+"/")))
	default:
		r.more++
	}
}

func (r *renames) notes() []string {
	if r.more == 0 {
		return r.lines
	}
	return append(r.lines, fmt.Sprintf("and %d more have another name here than on the VM", r.more))
}
