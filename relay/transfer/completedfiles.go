package transfer

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
)

// completedFiles records the files of a folder that an unfinished download has received
// and verified. Without it a repeated call would first query each of them, and calls of
// limited time would never finish a folder of many files. It is removed once the folder
// is complete; later downloads compare digests.
type completedFiles struct {
	name  string
	files map[string]completedFile // by remote path
	taken int64                    // of memory.Trees

	mu   sync.Mutex
	file *os.File
}

// completedFile is one file: its entry in the listing and its local name.
type completedFile struct {
	Remote   string    `json:"remote_path"`
	Size     int64     `json:"size_bytes"`
	Modified time.Time `json:"modified"`
	ETag     string    `json:"etag,omitempty"`
	Local    string    `json:"local"` // escaped, because JSON cannot carry every name
	// LocalModified is the local file's time, which a file system may round.
	LocalModified time.Time `json:"local_modified"`
}

const doneSuffix = ".done"

// openCompletedFiles reads the record of earlier calls for the same remote folder.
func openCompletedFiles(r records, name, remote string) (*completedFiles, error) {
	c := &completedFiles{name: r.name(name+"\x00"+remote, doneSuffix), files: map[string]completedFile{}}
	var err error
	c.file, err = openLines(r.root, c.name, c.accept)
	return c, err
}

func (c *completedFiles) accept(text []byte) bool {
	var file completedFile
	if json.Unmarshal(text, &file) != nil {
		return false
	}
	size := int64(len(text) + dirBytes)
	if !memory.Trees.Take(size) { // it costs a comparison of the file
		return true
	}
	c.files[file.Remote], c.taken = file, c.taken+size
	return true
}

// find returns the record of e, with its local name, if it was downloaded and neither copy changed
// since. It also returns that of a shorter file, which grew asks about.
func (c *completedFiles) find(root *os.Root, e remoteEntry, grew func(completedFile) bool) (file completedFile, ok bool) {
	file, ok = c.files[e.Path]
	if !ok {
		return file, false
	}
	file.Local = contract.UnescapeName(file.Local)
	info, err := root.Lstat(file.Local)
	if err != nil || !info.Mode().IsRegular() || info.Size() != file.Size || !info.ModTime().Equal(file.LocalModified) {
		return file, false
	}
	unchanged := file.Size == e.SizeBytes && file.Modified.Equal(e.Modified)
	return file, unchanged || file.Size < e.SizeBytes && file.ETag != "" && grew(file)
}

// add records that the remote file is complete as local. A record that cannot be written only
// costs a comparison later.
func (c *completedFiles) add(root *os.Root, remote contract.FileStat, local string) {
	info, err := root.Lstat(local)
	if err != nil {
		return
	}
	line, err := json.Marshal(completedFile{Remote: remote.Path, Size: remote.SizeBytes, Modified: remote.Modified, ETag: remote.ETag, Local: contract.EscapeName(local), LocalModified: info.ModTime()})
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.file.Write(append(line, '\n'))
}

// close ends the record. It is removed if outcome, the error of the folder, is nil.
func (c *completedFiles) close(r records, outcome error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.file.Close()
	memory.Trees.Return(c.taken)
	if outcome == nil {
		_ = r.root.Remove(c.name)
	}
	return outcome
}
