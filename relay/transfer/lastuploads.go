package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
	"colabrelay/shared/memory"
)

const (
	lastUploadsFile   = "uploads.json"
	lastUploadsFormat = "colab-relay uploads 1" // marks a file as such a record
	// maxLastUploads bounds the record, to the newest ones. A file whose upload was
	// forgotten is replaced only with Overwrite.
	maxLastUploads      = 10_000
	maxLastUploadsBytes = 8 << 20 // of their paths and digests; fewer uploads fit if the paths are long
	// recordWait is how long saving waits for another relay that saves. That takes milliseconds;
	// the bound is for one that was stopped in between.
	recordWait = 5 * time.Second
)

// lastUploads records the SHA-256 of the files that uploads from this computer put on VMs.
// A later upload may replace such a file while it still has that digest: nothing is lost,
// because only the copy on this computer changed. A nil one records nothing.
type lastUploads struct {
	dir string

	mu    sync.Mutex
	known map[uploadKey]string // nil until the record is read
	fresh []lastUpload         // to be saved
}

// uploadKey is a file on a VM.
type uploadKey struct {
	Instance string `json:"instance_id"`
	Path     string `json:"path"` // absolute and escaped
}

// lastUpload is one entry of the record.
type lastUpload struct {
	uploadKey
	SHA256 string `json:"sha256"`
	Local  string `json:"local,omitempty"` // the file on this computer; earlier versions did not record it
}

// lastUploadsRecord is the content of the file, the newest upload last.
type lastUploadsRecord struct {
	Format  string       `json:"format"`
	Uploads []lastUpload `json:"uploads"`
}

// openLastUploads returns the record in a folder, or nil if there is no folder for it.
func openLastUploads(dir string) *lastUploads {
	if dir == "" {
		return nil
	}
	return &lastUploads{dir: dir}
}

// digest returns the SHA-256 of the last upload to a path, or "" if none is recorded.
func (l *lastUploads) digest(instance, path string) string {
	if l == nil || instance == "" {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = map[uploadKey]string{}
		record, _ := l.read() // save reports a damaged one
		for _, u := range record.Uploads {
			l.known[u.uploadKey] = u.SHA256
		}
	}
	return l.known[uploadKey{instance, path}]
}

// UploadedFile is a file of this computer that was put on a VM.
type UploadedFile struct {
	Local  string
	Remote string // absolute and escaped
	SHA256 string
}

// Uploaded returns the files below a folder that uploads put on a VM, as far as the record in
// recordDir knows them.
func Uploaded(recordDir, instance, folder string) (files []UploadedFile) {
	l := openLastUploads(recordDir)
	full, err := filepath.Abs(folder)
	if l == nil || instance == "" || err != nil {
		return nil
	}
	record, _ := l.read() // save reports a damaged one
	for _, u := range record.Uploads {
		if place, err := filepath.Rel(full, u.Local); u.Instance == instance && err == nil && filepath.IsLocal(place) {
			files = append(files, UploadedFile{filepath.Join(folder, place), u.Path, u.SHA256})
		}
	}
	return files
}

// add records that a file is on the VM. It is not on the disk before save.
func (l *lastUploads) add(instance, path, sha, local string) {
	if l == nil || instance == "" || !contract.SHA256Pattern().MatchString(sha) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if full, err := filepath.Abs(local); local != "" && err == nil && utf8.ValidString(full) {
		local = full
	} else {
		local = ""
	}
	l.fresh = append(l.fresh, lastUpload{uploadKey{instance, path}, sha, local})
}

// save adds the new uploads to the file. A relay that runs at the same time may add others.
func (l *lastUploads) save() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.fresh) == 0 {
		return nil
	}
	if err := l.merge(); err != nil {
		return fmt.Errorf("recording what was uploaded: %w", markDiskFull(err))
	}
	l.fresh = nil
	return nil
}

// merge is save under the lock that relays share.
func (l *lastUploads) merge() error {
	root, err := openLocal(l.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	ctx, cancel := context.WithTimeout(context.Background(), recordWait)
	defer cancel()
	unlock, err := keep.Lock(ctx, l.path()+".lock")
	if err != nil {
		return fmt.Errorf("locking %q: %w", l.path(), errors.Join(err, ErrBusy))
	}
	defer unlock()
	record, err := l.read()
	if err != nil {
		if _, moveErr := keep.Aside(l.path()); moveErr != nil {
			return errors.Join(err, moveErr)
		}
	}
	record.Format, record.Uploads = lastUploadsFormat, newest(append(record.Uploads, l.fresh...))
	return saveOwn(root, lastUploadsFile, record)
}

func (l *lastUploads) path() string { return filepath.Join(l.dir, lastUploadsFile) }

// read returns the record, an empty one if there is none, or errNotOurs if it is damaged.
func (l *lastUploads) read() (lastUploadsRecord, error) {
	var record lastUploadsRecord
	root, err := os.OpenRoot(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return record, nil
	}
	if err != nil {
		return record, err
	}
	defer root.Close()
	text, err := readOwn(root, lastUploadsFile, 2*maxLastUploadsBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return record, nil
	}
	if err == nil && (json.Unmarshal(text, &record) != nil || record.Format != lastUploadsFormat) {
		err = errNotOurs
	}
	if err != nil {
		return lastUploadsRecord{}, err
	}
	return record, nil
}

// newest returns the last upload to each path, as many of the newest as the bounds allow.
func newest(all []lastUpload) []lastUpload {
	room := maxLastUploadsBytes
	seen := make(map[uploadKey]bool, len(all))
	var kept []lastUpload
	for i := len(all) - 1; i >= 0 && len(kept) < maxLastUploads; i-- {
		u := all[i]
		if seen[u.uploadKey] || !contract.SHA256Pattern().MatchString(u.SHA256) {
			continue
		}
		if room -= len(u.Instance) + len(u.Path) + len(u.SHA256) + len(u.Local); room < 0 {
			break
		}
		seen[u.uploadKey] = true
		kept = append(kept, u)
	}
	slices.Reverse(kept)
	return kept
}

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
