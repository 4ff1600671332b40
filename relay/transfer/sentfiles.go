package transfer

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"colabrelay/shared/contract"
)

const (
	sentSuffix = ".sent"
	// maxSentRecords bounds the records of abandoned uploads; the oldest one is removed
	// first.
	maxSentRecords = 16
	// settleTime is how old a modification time must be so that a later change is certain to
	// alter it: FAT stores it in steps of two seconds.
	settleTime = 2 * time.Second
)

// ResumeDir returns the folder for Options.ResumeDir below the checkpoint folder, or "" if
// there is no checkpoint folder.
func ResumeDir(checkpoints string) string {
	if checkpoints == "" {
		return ""
	}
	return filepath.Join(checkpoints, "uploads")
}

// sentFiles records the digests of the files of a folder whose upload is unfinished, and
// the ETags of those that are on the VM. Without it a repeated call would read each file
// on both sides. It proves nothing, because a comparison with the VM covers every file. It
// is removed once the folder is complete. A nil one records nothing.
type sentFiles struct {
	root   *os.Root
	name   string
	files  map[string]sentFile
	unlock func()

	mu   sync.Mutex
	file *os.File
	room int64 // bytes until maxRecordBytes
}

// sentFile is one file: its state and digest, and the ETag of the same file on the VM.
type sentFile struct {
	Key      string    `json:"name"` // escaped, because JSON cannot carry every name
	Size     int64     `json:"size_bytes"`
	Modified time.Time `json:"modified"`
	SHA256   string    `json:"sha256"`
	ETag     string    `json:"etag,omitempty"`
	settled  bool      // a later change is certain to alter Modified
}

// newSentFile returns the record of a file whose hashing started at started.
func newSentFile(key string, info fs.FileInfo, started time.Time, sha string) sentFile {
	at := info.ModTime()
	return sentFile{Key: key, Size: info.Size(), Modified: at, SHA256: sha, settled: started.Sub(at) >= settleTime}
}

// openSentFiles reads the record of earlier calls for the same upload. It returns nil if
// there can be no record, which only costs time later.
func openSentFiles(dir, local, target string) *sentFiles {
	full, err := filepath.Abs(local)
	if dir == "" || err != nil {
		return nil
	}
	root, err := openLocal(dir)
	if err != nil {
		return nil
	}
	s := &sentFiles{root: root, name: hiddenName(full+"\x00"+target, sentSuffix), files: map[string]sentFile{}}
	if s.unlock, err = lockName(root, s.name); err != nil {
		_ = root.Close()
		return nil // another call has the same upload in progress
	}
	s.dropOthers()
	s.room = maxRecordBytes
	s.file, err = openLines(root, s.name, s.accept)
	if err != nil {
		s.release()
		return nil
	}
	return s
}

func (s *sentFiles) accept(text []byte) bool {
	file := sentFile{settled: true}
	if json.Unmarshal(text, &file) != nil {
		return false
	}
	s.files[file.Key] = file
	s.room -= int64(len(text))
	return true
}

// dropOthers removes the oldest other records beyond maxSentRecords.
func (s *sentFiles) dropOthers() {
	for _, old := range oldest(s.root, sentSuffix, maxSentRecords-1) {
		if old != s.name {
			_ = s.root.Remove(old)
		}
	}
}

// find returns the record of a file that did not change since.
func (s *sentFiles) find(key string, info fs.FileInfo) (sentFile, bool) {
	if s == nil {
		return sentFile{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	file, ok := s.files[key]
	return file, ok && file.Size == info.Size() && file.Modified.Equal(info.ModTime()) && contract.SHA256Pattern().MatchString(file.SHA256)
}

// add records a file, unless the same is recorded already.
func (s *sentFiles) add(file sentFile) {
	if s == nil || !file.settled {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.files[file.Key]; ok && old.SHA256 == file.SHA256 && old.ETag == file.ETag && old.Modified.Equal(file.Modified) {
		return
	}
	text, err := json.Marshal(file)
	if err != nil || int64(len(text)) >= s.room {
		return
	}
	if _, err := s.file.Write(append(text, '\n')); err == nil {
		s.room -= int64(len(text)) + 1
		s.files[file.Key] = file
	}
}

// close ends the record, and removes it if the folder is done.
func (s *sentFiles) close(done bool) {
	if s == nil {
		return
	}
	_ = s.file.Close()
	if done {
		_ = s.root.Remove(s.name)
	}
	s.release()
}

func (s *sentFiles) release() {
	s.unlock()
	_ = s.root.Close()
}
