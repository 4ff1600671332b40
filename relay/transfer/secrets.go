package transfer

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Bounds of the guarded files that an upload is compared with. The danger is a hard link,
// which gives a secret a second name outside the guarded folders. Folders are read level by
// level.
const (
	// maxOwnFiles bounds the entries read from each of the relay's own folders. If one has
	// more, every file with several links is refused.
	maxOwnFiles = 100_000
	// maxKeyFiles bounds the entries read from each folder of keys. Deeper files are not
	// compared: keys are near the top, and browsers keep many small files below.
	maxKeyFiles = 20_000
)

// knownFile is a guarded file under its usual name.
type knownFile struct {
	name string
	info fs.FileInfo
}

// fileSet has guarded files by their size, so that a lookup compares few of them.
type fileSet map[int64][]knownFile

// add adds a file, or the target of a link. It ignores empty files, which contain no secret.
func (s fileSet) add(name string) {
	if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		s[info.Size()] = append(s[info.Size()], knownFile{name, info})
	}
}

// walk adds the files of a folder, at most limit entries. It reports whether it read all of
// the folder; a missing folder counts as read.
func (s fileSet) walk(dir string, limit int) bool {
	complete := true
	for todo := []string{dir}; len(todo) > 0; todo = todo[1:] {
		entries, err := listSome(todo[0], limit)
		limit -= len(entries)
		for _, e := range entries {
			name := filepath.Join(todo[0], e.Name())
			if e.IsDir() {
				todo = append(todo, name)
			} else {
				s.add(name)
			}
		}
		if errors.Is(err, ErrTooMany) {
			return false
		}
		complete = complete && (err == nil || errors.Is(err, fs.ErrNotExist))
	}
	return complete
}

// find returns the entries of the set that are this file.
func (s fileSet) find(info fs.FileInfo) []knownFile {
	var same []knownFile
	for _, k := range s[info.Size()] {
		if os.SameFile(k.info, info) {
			same = append(same, k)
		}
	}
	return same
}

// listSome returns the first entries of a folder, with ErrTooMany if it has more than limit.
func listSome(dir string, limit int) ([]fs.DirEntry, error) {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() { // opening a FIFO would wait for a writer
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readEntries(context.Background(), f, limit)
}

// secrets are the guarded files of this computer.
type secrets struct {
	own         fileSet // files of the relay's own folders
	ownComplete bool    // own has all of them
	keys        fileSet // keys at their usual places in the home folder
}

// findSecrets searches for the guarded files.
func (g *Guard) findSecrets() *secrets {
	s := &secrets{own: fileSet{}, ownComplete: true, keys: fileSet{}}
	for _, dir := range g.Never {
		s.ownComplete = s.own.walk(dir, maxOwnFiles) && s.ownComplete
	}
	if g.Home != "" {
		s.addKeys(g.Home)
	}
	return s
}

// addKeys adds the keys at their usual places in a home folder.
func (s *secrets) addKeys(home string) {
	l := lister{}
	for _, e := range l.list(home) {
		if name := filepath.Join(home, e.Name()); !e.IsDir() && looksLikeKey(name) {
			s.keys.add(name)
		}
	}
	for _, base := range append([]string{home}, l.spelled(home, "library", "appdata/local", "appdata/roaming")...) {
		for _, dir := range l.spelled(base, keyFolders...) {
			s.keys.walk(dir, maxKeyFiles)
		}
		for _, file := range l.spelled(base, keyPaths...) {
			s.keys.add(file)
		}
	}
}

// lister caches the entries of folders, at most maxKeyFiles of each.
type lister map[string][]fs.DirEntry

func (l lister) list(dir string) []fs.DirEntry {
	if _, cached := l[dir]; !cached {
		l[dir], _ = listSome(dir, maxKeyFiles)
	}
	return l[dir]
}

// spelled returns the existing paths below base that equal one of paths without case.
func (l lister) spelled(base string, paths ...string) []string {
	var found []string
	for _, path := range paths {
		at := []string{base}
		for _, part := range strings.Split(path, "/") {
			var next []string
			for _, dir := range at {
				for _, e := range l.list(dir) {
					if strings.EqualFold(e.Name(), part) {
						next = append(next, filepath.Join(dir, e.Name()))
					}
				}
			}
			at = next
		}
		found = append(found, at...)
	}
	return found
}
