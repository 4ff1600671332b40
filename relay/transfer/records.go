package transfer

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"colabrelay/relay/plain"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
	"colabrelay/shared/partfile"
	"colabrelay/shared/ranges"
)

// Bounds of the records in a folder.
const (
	maxOrigins = 1000 // downloaded folders that later calls may continue; the oldest are forgotten
	maxDone    = 32   // records of unfinished folders
	maxLocks   = 100  // lock files that killed downloads left
)

// records is where a transfer keeps its locks, and its records about folders: in the relay's
// own folder or, without one, beside the destination of a download. In a person's folder they
// would be uploaded, committed and copied with the person's files.
type records struct {
	root   *os.Root
	prefix string // of what the records are about
}

// openRecords returns the records about files in the local folder root. dir is the relay's own
// folder, or "". It must be closed.
func openRecords(dir string, root *os.Root) (records, error) {
	own, err := openLocal(cmp.Or(dir, root.Name()))
	if err != nil {
		return records{}, err
	}
	real, err := filepath.EvalSymlinks(root.Name()) // a folder may have several spellings
	if err != nil {
		real = root.Name()
	}
	return records{root: own, prefix: real + "\x00"}, nil
}

func (r records) close() { _ = r.root.Close() }

// name returns the name in r.root of the record about name in the destination.
func (r records) name(name, suffix string) string { return hiddenName(r.prefix+name, suffix) }

// lock reserves name in the local folder for one transfer, across processes. It returns ErrBusy if
// another one has reserved it.
func (r records) lock(local *os.Root, name string) (unlock func(), err error) {
	return lockFile(filepath.Join(r.root.Name(), r.name(name, lockSuffix)), absolute(local, name))
}

// prune removes the oldest records beyond the bounds, and locks that nobody holds.
func (r records) prune() {
	for suffix, most := range map[string]int{originSuffix: maxOrigins, doneSuffix: maxDone} {
		for _, old := range oldest(r.root, suffix, most) {
			_ = r.root.Remove(old)
		}
	}
	for _, old := range oldest(r.root, lockSuffix, maxLocks) {
		if file := filepath.Join(r.root.Name(), old); strings.HasPrefix(old, hiddenPrefix) {
			if unlock, err := lockFile(file, file); err == nil {
				unlock() // removes it
			}
		}
	}
}

// oldest returns the names of the oldest files with a suffix beyond the newest `most`.
func oldest(root *os.Root, suffix string, most int) []string {
	entries, err := os.ReadDir(root.Name())
	if err != nil {
		return nil
	}
	type file struct {
		name string
		at   time.Time
	}
	var all []file
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			all = append(all, file{e.Name(), info.ModTime()})
		}
	}
	sort.Slice(all, func(i, j int) bool {
		return cmp.Or(all[i].at.Compare(all[j].at), cmp.Compare(all[i].name, all[j].name)) < 0
	})
	var names []string
	for _, f := range all[:max(0, len(all)-most)] {
		names = append(names, f.name)
	}
	return names
}

// maxRecordBytes bounds a file of records: maxEntries lines of long names.
const maxRecordBytes = 64 << 20

// maxRecordLine bounds one record: a path of 4 KiB that JSON escapes, and its digest.
const maxRecordLine = 64 << 10

// openLines opens a file of records, one per line, for appending. It passes each line to
// accept, up to the first one that is incomplete or that accept refuses. The file is
// truncated before that line, so that the next record starts on a new line.
func openLines(root *os.Root, name string, accept func(line []byte) bool) (*os.File, error) {
	if info, err := root.Stat(name); err == nil && !info.Mode().IsRegular() { // reading a pipe would wait
		return nil, fmt.Errorf("opening %q: %w: remove it", absolute(root, name), bounded.ErrNotFile)
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening %q: %w", absolute(root, name), markDiskFull(err))
	}
	valid := readLines(f, accept)
	if err := f.Truncate(valid); err != nil {
		return nil, errors.Join(fmt.Errorf("truncating %q: %w", absolute(root, name), err), f.Close())
	}
	if _, err := f.Seek(valid, io.SeekStart); err != nil {
		return nil, errors.Join(fmt.Errorf("reading %q: %w", absolute(root, name), err), f.Close())
	}
	return f, nil
}

// readLines returns the length of the valid lines at the beginning of f.
func readLines(f io.Reader, accept func(line []byte) bool) (valid int64) {
	lines := bufio.NewReader(io.LimitReader(f, maxRecordBytes))
	for {
		text, size, err := bounded.ReadLine(lines, maxRecordLine)
		if err != nil || text == nil || !accept(text) {
			return valid
		}
		valid += size
	}
}

const doneSuffix = ".done"

// arrivals records the files of an unfinished folder that are at their destination and, of an
// upload, the digests of the others that were read. Without it a repeated call would first query or
// read each of them, and calls of limited time would never finish a folder of many files. It proves
// nothing of an upload, because a comparison with the VM covers every file. It is removed once the
// folder is complete. A nil one records nothing.
type arrivals struct {
	records records
	name    string
	files   map[string]arrival
	taken   int64 // of memory.Trees
	unlock  func()

	mu   sync.Mutex
	file *os.File
	room int64 // bytes until maxRecordBytes
}

// arrival is one file: its state where it comes from, and what is known of it.
type arrival struct {
	Key      string    `json:"name"` // on the VM: escaped, because JSON cannot carry every name
	Size     int64     `json:"size_bytes"`
	Modified time.Time `json:"modified"`
	// Of an upload: the file's digest, and the ETag of the same file on the VM.
	SHA256 string `json:"sha256,omitempty"`
	ETag   string `json:"etag,omitempty"`
	// Of a download: the file's local name, escaped, and its time, which a file system may round.
	Local         string    `json:"local,omitempty"`
	LocalModified time.Time `json:"local_modified,omitzero"`

	// unsettled: a later change of the file need not alter Modified, so it is not recorded.
	unsettled bool
}

// openArrivals reads the record of earlier calls for the same folder and remote path.
func openArrivals(r records, local *os.Root, folder, remote string) (*arrivals, error) {
	r.prune()
	name := folder + "\x00" + remote
	unlock, err := r.lock(local, name)
	if err != nil {
		return nil, err
	}
	a := &arrivals{records: r, name: r.name(name, doneSuffix), files: map[string]arrival{}, unlock: unlock, room: maxRecordBytes}
	if a.file, err = openLines(r.root, a.name, a.accept); err != nil {
		unlock()
		return nil, err
	}
	return a, nil
}

func (a *arrivals) accept(text []byte) bool {
	var one arrival
	if json.Unmarshal(text, &one) != nil {
		return false
	}
	a.room -= int64(len(text)) + 1
	size := int64(len(text) + dirBytes)
	if !memory.Trees.Take(size) { // it costs a comparison of the file
		return true
	}
	a.files[one.Key], a.taken = one, a.taken+size
	return true
}

// find returns what is recorded of a file that has this size and time.
func (a *arrivals) find(key string, size int64, modified time.Time) (arrival, bool) {
	if a == nil {
		return arrival{}, false
	}
	one, ok := a.files[key]
	return one, ok && one.Size == size && one.Modified.Equal(modified)
}

// add records a file. A record that cannot be written only costs a comparison later.
func (a *arrivals) add(one arrival) {
	if a == nil || one.unsettled {
		return
	}
	text, err := json.Marshal(one)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil || int64(len(text)) >= a.room {
		return
	}
	n, _ := a.file.Write(append(text, '\n'))
	a.room -= int64(n)
}

// close ends the record, and removes it if the folder is done.
func (a *arrivals) close(done bool) {
	if a == nil {
		return
	}
	_ = a.file.Close()
	memory.Trees.Return(a.taken)
	if done {
		_ = a.records.root.Remove(a.name)
	}
	a.unlock()
}

const (
	// partSuffix ends the names of unfinished files, which nothing else has.
	partSuffix    = partfile.Suffix
	journalSuffix = ".json"                  // after partSuffix
	journalFormat = "colab-relay download 1" // marks a file as a journal
	maxJournal    = 1 << 20                  // bytes; a larger file is not a journal
)

// errNotOurs means that a file is not a journal of a download, or is damaged.
var errNotOurs = errors.New("not a journal of a download")

// journal lists the bytes that a part file has. It is renamed into place, so a kill leaves
// the old or the new one. It is not synced, so after a power cut it may list bytes that the
// disk lost; the digest of the whole file detects that.
type journal struct {
	Format    string     `json:"format"`
	Remote    string     `json:"remote_path"`
	ETag      string     `json:"etag"`
	SizeBytes int64      `json:"size_bytes"`
	SHA256    string     `json:"sha256,omitempty"` // empty until the executor computed it
	Received  ranges.Set `json:"have"`
}

// matches reports whether the part's bytes are of the file that st describes. The same
// file has a different ETag on another VM, but the same digest.
func (j *journal) matches(remote string, st contract.FileStat) bool {
	if j.Remote != remote || j.SizeBytes != st.SizeBytes {
		return false
	}
	return j.ETag == st.ETag || j.SHA256 != "" && j.SHA256 == st.SHA256
}

// mayBeOf reports whether the part has bytes of an earlier, shorter state of that file.
func (j *journal) mayBeOf(remote string, st contract.FileStat) bool {
	return len(j.Received) > 0 && j.Remote == remote && j.SizeBytes < st.SizeBytes && j.ETag != st.ETag
}

func readJournal(root *os.Root, name string) (journal, error) {
	text, err := readOwn(root, name, maxJournal)
	if err != nil {
		return journal{}, err
	}
	return parseJournal(text)
}

// parseJournal accepts only what part.saveLocked writes.
func parseJournal(text []byte) (journal, error) {
	var j journal
	if len(text) > maxJournal || json.Unmarshal(text, &j) != nil || j.Format != journalFormat {
		return journal{}, errNotOurs
	}
	if j.SizeBytes < 0 || !j.Received.Valid(j.SizeBytes) || j.SHA256 != "" && !contract.SHA256Pattern().MatchString(j.SHA256) {
		return journal{}, errNotOurs
	}
	return j, nil
}

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
