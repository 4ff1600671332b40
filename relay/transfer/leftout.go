package transfer

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"colabrelay/relay/plain"
	"colabrelay/shared/filename"
)

// Bounds of LeftOut: a VM can have any number of such files, in any depth.
const (
	maxLeftOut      = 10
	maxLeftOutRunes = 1_500 // of the paths in its note, which others shorten to a line
)

// LeftOut are the files and folders of a download that were left out because programs on this
// computer may obey them because of their names. What is in such a folder is not counted.
type LeftOut struct {
	Paths []string // the first ones on the VM, at most maxLeftOut
	More  int      // the number of the others
}

func (l *LeftOut) add(path string) {
	if len(l.Paths) == maxLeftOut {
		l.More++
		return
	}
	l.Paths = append(l.Paths, path)
}

// Note describes them in one line; it is empty if there are none. remedy says how to download
// them.
func (l *LeftOut) Note(remedy string) string {
	if len(l.Paths) == 0 {
		return ""
	}
	var shown []string
	more, room := l.More, maxLeftOutRunes
	for _, path := range l.Paths {
		path = plain.QuoteName(path)
		if room -= utf8.RuneCountInString(path); room < 0 {
			more++ // whole or not at all: half of a path names another file
			continue
		}
		shown = append(shown, path)
	}
	if more > 0 {
		shown = append(shown, plain.Count(more, "further one"))
	}
	return fmt.Sprintf("left out, because programs on this computer may obey files of such names: %s; %s", strings.Join(shown, ", "), remedy)
}

// leavesOut reports whether a download of a folder has no file, or no folder, of this local name.
func (j *job) leavesOut(name string, folder bool) bool {
	if j.dotfiles && !j.noObeyed {
		return false
	}
	return filename.Obeyed(name) || !folder && filename.ObeyedFile(name)
}
