// Package uploads stores files on the VM that arrive in parts, in any order and with
// interruptions, or many small ones in a batch.
//
// It must not show a file under its name before the file is complete, replace a file
// unless asked to, or write outside the roots of executor/files. Uploads survive a restart
// of the executor. Start reading at Store, then at upload: one file that is being received.
// A part file (part.go) receives the bytes, a journal records which ones have arrived, and
// a placement gives the complete file its name.
package uploads

import (
	"context"
	"fmt"
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
	commits chan *upload  // uploads to be committed, each at most once
	batches chan struct{} // holds one value while a batch is processed

	mu   sync.Mutex
	used *simplelru.LRU[string, *usedUpload] // all uploads by id; trimLocked and sweep bound them
}

// usedUpload is an upload, and when it was last used.
type usedUpload struct {
	*upload
	at time.Time
}

// Open resumes the uploads in dir, which is created if it does not exist. Uploads that
// can't be read are dropped: their senders start again.
func Open(roots *files.Roots, dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the folder of uploads: %w", err)
	}
	if err := removeLeftovers(roots, filepath.Join(dir, leftoversFile)); err != nil {
		return nil, fmt.Errorf("removing the leftovers of a batch: %w", err)
	}
	s := &Store{roots: roots, dir: dir, commits: make(chan *upload, contract.MaxUploads), batches: make(chan struct{}, 1)}
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
		if one, err := s.recover(folder.Name()); err != nil {
			os.RemoveAll(filepath.Join(s.dir, folder.Name()))
		} else {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b *usedUpload) int { return a.at.Compare(b.at) })
	s.used, err = simplelru.NewLRU(math.MaxInt, func(_ string, one *usedUpload) { one.drop() })
	for _, one := range all {
		s.used.Add(one.id, one)
	}
	return err
}

var isUploadID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// recover reads the folder of one upload.
func (s *Store) recover(id string) (*usedUpload, error) {
	if !isUploadID.MatchString(id) {
		return nil, ErrNoUpload
	}
	j, rec, got, err := openJournal(filepath.Join(s.dir, id))
	if err != nil {
		return nil, err
	}
	if uploadID(rec.UploadStart) != id {
		return nil, ErrNoUpload
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
		id: id, spec: start, roots: s.roots, journal: &journal{dir: filepath.Join(s.dir, id)},
		record: record{UploadStart: start}, status: contract.UploadReceiving,
	}
}

// Run commits uploads and drops unused ones until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	var sweeper sync.WaitGroup
	sweeper.Go(func() { s.sweepUntil(ctx) })
	files.HashEach(ctx, s.commits, func(ctx context.Context, one *upload) { one.finish(ctx) })
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
// missing folders. A path that ends in a slash, without size and SHA-256, is a folder: it
// is created and its answer is committed. ErrDiskFull means that the missing bytes do not
// fit on the disk.
func (s *Store) Start(start contract.UploadStart) (contract.Upload, error) {
	if _, err := s.roots.Absolute(start.Path); err != nil {
		return contract.Upload{}, err
	}
	if strings.HasSuffix(start.Path, "/") && start.SizeBytes == 0 && start.SHA256 == "" {
		return s.makeFolder(start.Path)
	}
	if start.SizeBytes < 0 || !contract.SHA256Pattern.MatchString(start.SHA256) {
		return contract.Upload{}, fmt.Errorf("upload to %q: %w: the size and the SHA-256 are required", start.Path, ErrBadUpload)
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

func (s *Store) makeFolder(path string) (contract.Upload, error) {
	shown, err := s.roots.MakeFolder(path)
	if err != nil {
		return contract.Upload{}, fmt.Errorf("creating the folder %q: %w", path, err)
	}
	return contract.Upload{Status: contract.UploadCommitted, Path: shown, Missing: []contract.Range{}}, nil
}

// Put stores body at offset. proven means that its digest was verified: if the digest of
// the whole file turns out wrong, unproven bytes have to be sent again. Bytes that were
// received before are not written again. With ErrDiskFull, the bytes that fit are kept.
func (s *Store) Put(id string, offset int64, body []byte, proven bool) (contract.Upload, error) {
	return s.with(id, func(one *upload) (contract.Upload, error) { return one.put(offset, body, proven) })
}

// Get is the state of an upload. While it is being hashed, Get waits for the end of that,
// at most for wait. The error of a failed commit is returned until more bytes arrive.
func (s *Store) Get(ctx context.Context, id string, wait time.Duration) (contract.Upload, error) {
	return s.with(id, func(one *upload) (contract.Upload, error) { return one.await(ctx, wait) })
}

// Commit verifies the whole file, gives it its name, and waits for that, at most for wait.
// The status is receiving if bytes are missing, which includes unproven bytes that turned
// out wrong. ErrDigest means that all bytes were proven and the whole is still wrong: the
// upload starts again from nothing.
func (s *Store) Commit(ctx context.Context, id string, wait time.Duration) (contract.Upload, error) {
	return s.with(id, func(one *upload) (contract.Upload, error) {
		if err := one.commit(s.commits); err != nil {
			return contract.Upload{}, err
		}
		return one.await(ctx, wait)
	})
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
	id := uploadID(start)
	if one, err := s.getLocked(id); err == nil {
		return one, false, nil
	}
	if !s.trimLocked(contract.MaxUploads - 1) {
		return nil, false, fmt.Errorf("upload to %q: %w: %d uploads are being committed", start.Path, files.ErrBusy, contract.MaxUploads)
	}
	one = s.newUpload(id, start)
	s.used.Add(id, &usedUpload{one, time.Now()})
	return one, true, nil
}

// remove drops an upload that could not be started. Dropping happens under the lock, so
// that a new upload does not get the same folder before it is gone.
func (s *Store) remove(one *upload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if current, ok := s.used.Peek(one.id); ok && current.upload == one {
		s.used.Remove(one.id)
	}
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
