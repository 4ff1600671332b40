package transfer

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"colabrelay/shared/contract"
)

const (
	sentSuffix = ".sent"
	// maxSent bounds the memos kept of uploads that were given up; the one written
	// longest ago goes first.
	maxSentRecords = 16
	// settled is how old a file's time must be for it to tell a new change from the last
	// one: FAT keeps it in steps of two seconds.
	settleTime = 2 * time.Second
)

// ResumeDir is the folder for Options.ResumeDir below the checkpoint folder; empty where
// there is none.
func ResumeDir(checkpoints string) string {
	if checkpoints == "" {
		return ""
	}
	return filepath.Join(checkpoints, "uploads")
}

// sentMemo remembers the digests of the files of a folder whose upload is unfinished,
// and what the VM called them by once they were there. Without it the same call again
// would read each of them on both sides. It proves nothing: a comparison asks the VM
// about each file. It goes once the folder is whole. A nil one remembers nothing.
type sentFiles struct {
	root   *os.Root
	name   string
	files  map[string]sentFile
	unlock func() // gives the lock back

	mu   sync.Mutex
	file *os.File
	room int64 // bytes until maxMemo
}

// sentLine is one file: what it was, and the etag of the same file on the VM.
type sentFile struct {
	Key      string    `json:"name"` // escaped, as JSON can't carry every name
	Size     int64     `json:"size_bytes"`
	Modified time.Time `json:"modified"`
	SHA256   string    `json:"sha256"`
	ETag     string    `json:"etag,omitempty"`
	settled  bool      // the time tells a later change
}

// newSentLine is of a file whose digest was begun at a time.
func newSentFile(key string, info fs.FileInfo, began time.Time, sha string) sentFile {
	at := info.ModTime()
	return sentFile{Key: key, Size: info.Size(), Modified: at, SHA256: sha, settled: began.Sub(at) >= settleTime}
}

// openSentMemo takes up what an earlier call noted of the same upload. Whatever is in
// the way of that costs time later and nothing else.
func openSentFiles(dir, local, target string) *sentFiles {
	full, err := filepath.Abs(local)
	if dir == "" || err != nil {
		return nil
	}
	root, err := openLocal(dir)
	if err != nil {
		return nil
	}
	m := &sentFiles{root: root, name: hiddenName(full+"\x00"+target, sentSuffix), files: map[string]sentFile{}}
	if m.unlock, err = lockName(root, m.name); err != nil {
		_ = root.Close()
		return nil // another call does the same upload
	}
	m.dropOthers()
	m.room = maxRecordBytes
	m.file, err = openLines(root, m.name, m.accept)
	if err != nil {
		m.release()
		return nil
	}
	return m
}

func (m *sentFiles) accept(text []byte) bool {
	line := sentFile{settled: true}
	if json.Unmarshal(text, &line) != nil {
		return false
	}
	m.files[line.Key] = line
	m.room -= int64(len(text))
	return true
}

// dropOthers removes the memos beyond maxSent, this one apart.
func (m *sentFiles) dropOthers() {
	entries, err := os.ReadDir(m.root.Name())
	if err != nil {
		return
	}
	var others []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.Mode().IsRegular() && e.Name() != m.name && strings.HasSuffix(e.Name(), sentSuffix) {
			others = append(others, info)
		}
	}
	slices.SortFunc(others, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range others[:max(0, len(others)-maxSentRecords+1)] {
		_ = m.root.Remove(info.Name())
	}
}

// of is what was noted of a file that is as it was then.
func (m *sentFiles) find(key string, info fs.FileInfo) (sentFile, bool) {
	if m == nil {
		return sentFile{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	line, ok := m.files[key]
	return line, ok && line.Size == info.Size() && line.Modified.Equal(info.ModTime()) && digestPattern.MatchString(line.SHA256)
}

// add notes a file, when that says more than what is noted already.
func (m *sentFiles) add(line sentFile) {
	if m == nil || !line.settled {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if old, ok := m.files[line.Key]; ok && old.SHA256 == line.SHA256 && old.ETag == line.ETag && old.Modified.Equal(line.Modified) {
		return
	}
	text, err := json.Marshal(line)
	if err != nil || int64(len(text)) >= m.room {
		return
	}
	if _, err := m.file.Write(append(text, '\n')); err == nil {
		m.room -= int64(len(text)) + 1
		m.files[line.Key] = line
	}
}

// close ends the memo; done says that the folder is whole.
func (m *sentFiles) close(done bool) {
	if m == nil {
		return
	}
	_ = m.file.Close()
	if done {
		_ = m.root.Remove(m.name)
	}
	m.release()
}

func (m *sentFiles) release() {
	m.unlock()
	_ = m.root.Close()
}

// sentKey is what the memo knows a file of a folder by.
func sentKey(name string) string { return contract.EscapeName(name) }
