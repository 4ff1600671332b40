// Package uploads stores files on the VM that arrive in parts, in any order and with
// interruptions, or many small ones in a batch.
//
// It must not show a file under its name before the file is complete, replace a file
// unless asked to, or write outside the roots of executor/files. Uploads survive a restart
// of the executor. Start reading at Store, then at upload: one file that is being received.
// A part file receives the bytes, a journal records which ones have arrived, a prefixHash follows
// them, and a placement gives the complete file its name.
package uploads

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
)

const (
	maxCommitted = 256                // committed uploads kept; the least recently used one is dropped
	keepUploads  = 7 * 24 * time.Hour // an upload that is unused for longer is dropped
	sweepEvery   = time.Hour
)

// Store holds the uploads of one executor. The parts of a file arrive in any order, in a
// hidden file beside the target. The file gets its name once its digest is correct.
// Received bytes survive a restart of the executor.
type Store struct {
	roots   *files.Roots
	dir     string
	log     *slog.Logger
	work    chan *upload  // uploads to be hashed, each at most once
	batches chan struct{} // holds one value while a batch is processed

	mu     sync.Mutex
	used   *simplelru.LRU[string, *usedUpload] // all uploads by id; trimLocked and sweep bound them
	starts map[contract.UploadStart]*upload    // the same uploads
}

// usedUpload is an upload, and when it was last used.
type usedUpload struct {
	*upload
	at time.Time
}

// Open resumes the uploads in dir, which is created if it does not exist. The folders of
// uploads that can't be read are renamed: their senders start again.
func Open(roots *files.Roots, dir string, log *slog.Logger) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the folder of uploads: %w", err)
	}
	log = log.With("component", "uploads")
	if err := removeLeftovers(roots, filepath.Join(dir, leftoversFile)); err != nil {
		setAside(log, filepath.Join(dir, leftoversFile), err)
	}
	s := &Store{
		roots: roots, dir: dir, log: log, work: make(chan *upload, contract.MaxUploads), batches: make(chan struct{}, 1),
		starts: map[contract.UploadStart]*upload{},
	}
	if err := s.recoverAll(); err != nil {
		return nil, err
	}
	s.sweep(time.Now().Add(-keepUploads))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trimLocked(contract.MaxUploads)
	return s, nil
}

// recoverAll reads the uploads of earlier executors, the least recently used one first.
func (s *Store) recoverAll() error {
	folders, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("reading the folder of uploads: %w", err)
	}
	var all []*usedUpload
	for _, folder := range folders {
		if !isUploadID.MatchString(folder.Name()) {
			continue // renamed, or not ours
		}
		one, err := s.recover(folder.Name())
		if err != nil {
			setAside(s.log, filepath.Join(s.dir, folder.Name()), err)
			continue
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b *usedUpload) int { return a.at.Compare(b.at) })
	s.used, err = simplelru.NewLRU(math.MaxInt, func(_ string, one *usedUpload) {
		delete(s.starts, one.spec)
		one.drop()
	})
	for _, one := range all {
		s.addLocked(one)
	}
	return err
}

func (s *Store) addLocked(one *usedUpload) {
	s.used.Add(one.id, one)
	s.starts[one.spec] = one.upload
}

// setAside renames what is damaged and logs that.
func setAside(log *slog.Logger, path string, why error) {
	kept, err := keep.Aside(path)
	log.Warn("a damaged record of uploads is kept under another name; its file is sent again", "err", errors.Join(why, err), "kept", kept)
}

var isUploadID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// newUploadID is random, because ids are visible to whoever carries the requests.
func newUploadID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails: it ends the program instead
	return hex.EncodeToString(id)
}

// recover reads the folder of one upload.
func (s *Store) recover(id string) (*usedUpload, error) {
	j, rec, got, err := openJournal(filepath.Join(s.dir, id))
	if err != nil {
		return nil, err
	}
	if err := checkStart(rec.UploadStart); err != nil {
		j.close()
		return nil, err
	}
	one := s.newUpload(id, rec.UploadStart)
	one.journal, one.record, one.got = j, rec, got
	at, err := j.lastUsed()
	if rec.ETag != "" {
		one.markCommittedLocked(rec)
	} else if one.wasPlaced() {
		one.recordCommitLocked(one.record)
	}
	return &usedUpload{one, at}, err
}

func (s *Store) newUpload(id string, start contract.UploadStart) *upload {
	return &upload{
		id: id, spec: start, part: partName(start), roots: s.roots, journal: &journal{dir: filepath.Join(s.dir, id)}, work: s.work,
		record: record{UploadStart: start}, prefix: newPrefixHash(start.SizeBytes), status: contract.UploadReceiving,
	}
}

// Run hashes and commits uploads and drops unused ones until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	var sweeper sync.WaitGroup
	sweeper.Go(func() { s.sweepUntil(ctx) })
	files.HashEach(ctx, s.work, func(ctx context.Context, one *upload) { one.follow(ctx) })
	sweeper.Wait()
	return nil
}

func (s *Store) sweepUntil(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.sweep(time.Now().Add(-keepUploads))
		case <-ctx.Done():
			return
		}
	}
}

// Start starts an upload, or resumes the one that an equal call started. It creates
// missing folders. A path that ends in a slash, without size and version, is a folder: it
// is created and its answer is committed. ErrDiskFull means that the missing bytes do not
// fit on the disk.
func (s *Store) Start(start contract.UploadStart) (contract.Upload, error) {
	if _, err := s.roots.Absolute(start.Path); err != nil {
		return contract.Upload{}, err
	}
	if strings.HasSuffix(start.Path, "/") && start.SizeBytes == 0 && start.Version == "" {
		return s.makeFolder(start.Path)
	}
	if err := checkStart(start); err != nil {
		return contract.Upload{}, err
	}
	one, added, err := s.findOrAdd(start)
	if err != nil {
		return contract.Upload{}, err
	}
	out, err := one.start()
	if err != nil && added {
		s.remove(one)
	}
	return out, one.wrap(err)
}

func checkStart(start contract.UploadStart) error {
	if start.SizeBytes < 0 || start.Version == "" || max(len(start.Version), len(start.Source)) > contract.MaxUploadVersion {
		return fmt.Errorf("upload to %q: %w: the size and a version of at most %d bytes are required", start.Path, ErrBadUpload, contract.MaxUploadVersion)
	}
	return checkReplaces(start.Replaces, start.Overwrite)
}

// checkReplaces checks what an upload may replace.
func checkReplaces(sum string, overwrite bool) error {
	switch {
	case sum == "":
		return nil
	case overwrite:
		return fmt.Errorf("%w: overwrite and replaces exclude each other", ErrBadUpload)
	case sum != contract.ReplaceNothing && !contract.SHA256Pattern().MatchString(sum):
		return fmt.Errorf("%w: replaces must be a SHA-256 or %q", ErrBadUpload, contract.ReplaceNothing)
	}
	return nil
}

func (s *Store) makeFolder(path string) (contract.Upload, error) {
	shown, err := s.roots.MakeFolder(path)
	if err != nil {
		return contract.Upload{}, fmt.Errorf("creating the folder %q: %w", path, err)
	}
	return contract.Upload{Status: contract.UploadCommitted, Path: shown, Missing: []contract.Range{}}, nil
}

// Put stores length bytes from body at offset. body must return only bytes that the sender
// sent, and io.EOF only at the end of the part: what it returned before an error is kept, and
// Put returns the error. Only body's errors end Put early: the context of a request that was
// cut has ended although its last bytes are still to be read. Bytes that were received before
// are read, but not written again. With ErrDiskFull, the bytes that fit are kept. ErrBadRange
// means that the bytes are not inside the file, or that body is shorter or longer than length.
func (s *Store) Put(id string, offset, length int64, body io.Reader) (contract.Upload, error) {
	return s.with(id, func(one *upload) (contract.Upload, error) {
		return one.put(contract.Range{Offset: offset, Length: length}, body)
	})
}

// Get is the state of an upload. While it is being hashed, Get waits for the end of that,
// at most for wait. The error of a failed commit is returned until more bytes arrive.
func (s *Store) Get(ctx context.Context, id string, wait time.Duration) (contract.Upload, error) {
	return s.with(id, func(one *upload) (contract.Upload, error) { return one.await(ctx, wait) })
}

// Commit compares the received bytes with the SHA-256 sum, gives the file its name, and
// waits for that, at most for wait. The status is receiving if bytes are missing. ErrDigest
// means that the file changed while it was sent: the upload starts again from nothing.
func (s *Store) Commit(ctx context.Context, id, sum string, wait time.Duration) (contract.Upload, error) {
	return s.with(id, func(one *upload) (contract.Upload, error) {
		if !contract.SHA256Pattern().MatchString(sum) {
			return contract.Upload{}, fmt.Errorf("%w: the SHA-256 is required", ErrBadUpload)
		}
		if err := one.commit(sum); err != nil {
			return contract.Upload{}, err
		}
		return one.await(ctx, wait)
	})
}

// Drop deletes an upload that its sender gives up, with the bytes received so far. A committed
// file stays.
func (s *Store) Drop(id string) error {
	one, err := s.get(id)
	if err != nil {
		return err
	}
	if one.statusNow() == contract.UploadHashing {
		return fmt.Errorf("upload %q: %w: it is being committed", id, files.ErrBusy)
	}
	s.remove(one)
	return nil
}

// with calls f with an upload, and adds the upload's path to its error.
func (s *Store) with(id string, f func(*upload) (contract.Upload, error)) (contract.Upload, error) {
	one, err := s.get(id)
	if err != nil {
		return contract.Upload{}, err
	}
	out, err := f(one)
	return out, one.wrap(err)
}

func (s *Store) get(id string) (*upload, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.getLocked(id)
}

// getLocked is the upload with this id, which counts as used now.
func (s *Store) getLocked(id string) (*upload, error) {
	one, ok := s.used.Get(id)
	if !ok {
		return nil, fmt.Errorf("upload %q: %w", id, ErrNoUpload)
	}
	one.at = time.Now()
	return one.upload, nil
}

// findOrAdd is the upload that an equal start made, or a new one.
func (s *Store) findOrAdd(start contract.UploadStart) (one *upload, added bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one, ok := s.starts[start]; ok {
		one, err = s.getLocked(one.id)
		return one, false, err
	}
	for _, other := range s.used.Values() {
		earlier := other.spec.Path == start.Path && other.spec.Source == start.Source && start.Source != "" && other.spec.Version != start.Version
		if earlier && other.statusNow() == contract.UploadReceiving {
			s.used.Remove(other.id)
		}
	}
	if !s.trimLocked(contract.MaxUploads - 1) {
		return nil, false, fmt.Errorf("upload to %q: %w: %d uploads are being committed", start.Path, files.ErrBusy, contract.MaxUploads)
	}
	one = s.newUpload(newUploadID(), start)
	s.addLocked(&usedUpload{one, time.Now()})
	return one, true, nil
}

// remove drops an upload. Dropping happens under the lock, so
// that a new upload does not get the same part file before it is gone.
func (s *Store) remove(one *upload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used.Remove(one.id)
}

// sweep drops the uploads that were last used before the given time.
func (s *Store) sweep(before time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.used.Values() { // the least recently used one first
		if !one.at.Before(before) {
			return // the others were used later
		}
		if _, busy := one.state(); !busy {
			s.used.Remove(one.id)
		}
	}
}

// trimLocked drops the least recently used uploads over the bounds and reports whether at
// most maxReceiving are left that are not committed. Uploads in work are not dropped.
func (s *Store) trimLocked(maxReceiving int) bool {
	var receiving, committed []*usedUpload
	working := 0
	for _, one := range s.used.Values() { // the least recently used one first
		switch done, busy := one.state(); {
		case busy:
			working++
		case done:
			committed = append(committed, one)
		default:
			receiving = append(receiving, one)
		}
	}
	surplus := min(len(receiving), max(0, working+len(receiving)-maxReceiving))
	for _, one := range slices.Concat(receiving[:surplus], committed[:max(0, len(committed)-maxCommitted)]) {
		s.used.Remove(one.id)
	}
	return working+len(receiving)-surplus <= maxReceiving
}

// Errors of this package. Those of executor/files are passed on.
var (
	ErrNoUpload  = errors.New("no such upload")
	ErrBadUpload = errors.New("invalid upload")
	// ErrDigest means that all bytes of a file arrived and do not match its SHA-256.
	ErrDigest = errors.New("the received bytes do not match the SHA-256")
	// ErrTaken means that the target is not the file that the upload may replace.
	ErrTaken = errors.New("a different file is there, and the upload may not replace it")
)
