package transfer

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"colabrelay/shared/contract"
)

// memo remembers which files of a folder an unfinished download brought and checked.
// Without it the same call again would ask about each of them first, and a folder of
// many files would never be finished by calls that each have little time. It goes once
// the folder is whole: later downloads compare digests.
type completedFiles struct {
	name  string
	files map[string]completedFile // by remote path

	mu   sync.Mutex
	file *os.File
}

// memoLine is one file: what the listing said of it, and where it is.
type completedFile struct {
	Remote   string    `json:"remote_path"`
	Size     int64     `json:"size_bytes"`
	Modified time.Time `json:"modified"`
	Local    string    `json:"local"` // escaped, as JSON can't carry every name
	// LocalModified is the local file's time, which a file system may keep less exactly.
	LocalModified time.Time `json:"local_modified"`
}

// openMemo reads what an earlier call noted about the same remote folder.
func openCompletedFiles(root *os.Root, name, remote string) (*completedFiles, error) {
	m := &completedFiles{name: hiddenName(name+"\x00"+remote, ".done"), files: map[string]completedFile{}}
	var err error
	m.file, err = openLines(root, m.name, func(text []byte) bool {
		var line completedFile
		err := json.Unmarshal(text, &line)
		if err == nil {
			m.files[line.Remote] = line
		}
		return err == nil
	})
	return m, err
}

// holds reports whether e was brought already, and neither side was touched since; local
// is where it is.
func (m *completedFiles) find(root *os.Root, e remoteEntry) (local string, ok bool) {
	line, ok := m.files[e.Path]
	if !ok || line.Size != e.SizeBytes || !line.Modified.Equal(e.Modified) {
		return "", false
	}
	local = contract.UnescapeName(line.Local)
	info, err := root.Lstat(local)
	return local, err == nil && info.Mode().IsRegular() && info.Size() == e.SizeBytes && info.ModTime().Equal(line.LocalModified)
}

// add notes a file that is in its place. A line that can't be written costs a second
// look later, nothing else.
func (m *completedFiles) add(root *os.Root, e remoteEntry, local string) {
	info, err := root.Lstat(local)
	if err != nil {
		return
	}
	line, err := json.Marshal(completedFile{Remote: e.Path, Size: e.SizeBytes, Modified: e.Modified, Local: contract.EscapeName(local), LocalModified: info.ModTime()})
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, _ = m.file.Write(append(line, '\n'))
}

// close ends the memo with the folder's outcome: it goes where that is good.
func (m *completedFiles) close(root *os.Root, outcome error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.file.Close()
	if outcome == nil {
		_ = root.Remove(m.name)
	}
	return outcome
}
