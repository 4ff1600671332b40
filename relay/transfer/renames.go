package transfer

import (
	"fmt"
	"path"
	"strings"

	"colabrelay/shared/contract"
)

// renames lists the files and folders of a transfer whose names on the laptop and on the
// VM differ, because the name was taken or cannot be a local one.
type renames struct {
	lines []string // at most maxRenamed
	more  int
}

// add records that remote is called local, if the names differ. top is the local folder of
// the download.
func (r *renames) add(remote contract.File, top, local string) {
	if contract.EscapeName(path.Base(local)) != remote.Name {
		r.addLine(fmt.Sprintf("%q has a different name here: %q", remote.Path, strings.TrimPrefix(local, top+"/")))
	}
}

// addUploaded records that a file was uploaded as remote, if target has another name.
// folder is the target's place in the uploaded folder.
func (r *renames) addUploaded(folder, target, remote string) {
	if name, saved := path.Base(target), path.Base(remote); saved != name {
		r.addLine(fmt.Sprintf("%q already exists with different content; the new file was saved as %q", path.Join(folder, name), path.Join(folder, saved)))
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
