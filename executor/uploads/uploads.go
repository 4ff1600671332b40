// Package uploads stores files on the VM that arrive in parts, in any order and with
// interruptions, or many small ones in a batch.
//
// It must not show a file under its name before the file is complete, replace a file
// unless asked to, or write outside the roots of executor/files. Uploads survive a restart
// of the executor. Start reading at Store, then at upload: one file that is being received.
// A part file beside the target receives the bytes, a record in the state folder lists which
// ones have arrived, a hash follows them, and a placement gives the complete file its name.
package uploads

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
	"colabrelay/shared/partfile"
)

const (
	keepUploads = 7 * 24 * time.Hour // an upload that is unused for longer is dropped
	sweepEvery  = time.Hour
)

// Store holds the uploads of one executor. The parts of a file arrive in any order, in a
// hidden file beside the target. The file gets its name once its digest is correct.
// Received bytes survive a restart of the executor. Of a committed upload nothing is kept.
type Store struct {
	roots   *files.Roots
	digests *files.Digests
	dir     string
	log     *slog.Logger
	batches chan struct{} // holds one value while a batch is processed

	mu  sync.Mutex
	all map[string]*upload // by id; trimLocked bounds it
}

// Open resumes the uploads in dir, which is created if it does not exist. The records of
// uploads that can't be read are renamed: their senders start again.
func Open(roots *files.Roots, digests *files.Digests, dir string, log *slog.Logger) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the folder of uploads: %w", err)
	}
	s := &Store{
		roots: roots, digests: digests, dir: dir, log: log.With("component", "uploads"),
		batches: make(chan struct{}, 1), all: map[string]*upload{},
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the folder of uploads: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		id, isRecord := strings.CutSuffix(entry.Name(), recordSuffix)
		switch {
		case strings.HasSuffix(path, freshSuffix):
			_ = os.Remove(path) // a kill left it
		case isRecord && isUploadID.MatchString(id):
			s.setAside(path, s.recover(id))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trimLocked(contract.MaxUploads)
	return s, nil
}

// recover adds the upload of an earlier executor.
func (s *Store) recover(id string) error {
	var found record
	path := filepath.Join(s.dir, id+recordSuffix)
	if err := readJSON(path, maxRecord, &found); err != nil {
		return err
	}
	if err := checkStart(found.UploadStart); err != nil {
		return err
	}
	if !found.Received.Valid(found.SizeBytes) {
		return errors.New("it lists bytes that the file does not have")
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	one := s.newUpload(id, found.UploadStart)
	one.record, one.used, one.received = found, info.ModTime(), partfile.NewReceived(found.SizeBytes, found.Received, one.save)
	if found.Batch {
		one.drop()
	} else {
		s.all[id] = one
	}
	return nil
}

// setAside renames what is damaged and logs that.
func (s *Store) setAside(path string, why error) {
	if why == nil {
		return
	}
	kept, err := keep.Aside(path)
	s.log.Warn("a damaged record of uploads is kept under another name; its file is sent again", "err", errors.Join(why, err), "kept", kept)
}

var isUploadID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// newUploadID is random, because ids are visible to whoever carries the requests.
func newUploadID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails: it ends the program instead
	return hex.EncodeToString(id)
}

func (s *Store) newUpload(id string, start contract.UploadStart) *upload {
	o := &upload{
		id: id, spec: start, part: partName(start), roots: s.roots, digests: s.digests, path: filepath.Join(s.dir, id+recordSuffix),
		used: time.Now(),
	}
	o.received = partfile.NewReceived(start.SizeBytes, nil, o.save)
	return o
}

// Run drops unused uploads until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.mu.Lock()
			s.trimLocked(contract.MaxUploads)
			s.mu.Unlock()
		case <-ctx.Done():
			return nil
		}
	}
}

// Start starts an upload, or resumes the one that an equal call started. It creates
// missing folders. A path that ends in a slash, without size and version, is a folder: it
// is created and its answer is committed. ErrDiskFull means that the missing bytes do not
// fit on the disk.
//
// With a SHA-256 it starts none: once all bytes have arrived, it compares them with that, and gives
// the file its name. That may take wait, after which the status is hashing, and the next call goes
// on. ErrDigest means that the file changed while it was sent: the upload is dropped.
func (s *Store) Start(ctx context.Context, start contract.UploadStart, wait time.Duration) (contract.Upload, error) {
	if _, err := s.roots.Absolute(start.Path); err != nil {
		return contract.Upload{}, err
	}
	if strings.HasSuffix(start.Path, "/") && start.SizeBytes == 0 && start.Version == "" {
		return s.makeFolder(start.Path)
	}
	if err := checkStart(start); err != nil {
		return contract.Upload{}, err
	}
	sum := start.SHA256
	start.SHA256 = ""
	one := s.find(start)
	switch {
	case sum != "" && one == nil:
		return s.placed(ctx, start, sum, wait)
	case sum != "":
		out, err := one.commit(ctx, sum, wait)
		if out.Status == contract.UploadCommitted {
			s.remove(one)
		}
		return out, s.result(one, err)
	case one != nil:
		out, err := one.resume()
		if err = s.result(one, err); !errors.Is(err, ErrNoUpload) {
			return out, err
		}
	}
	one, err := s.add(start)
	if err != nil {
		return contract.Upload{}, err
	}
	out, err := one.create()
	if err != nil {
		s.remove(one)
	}
	return out, one.wrap(err)
}

// placed is the answer about an upload that is not known: it is committed if its file is there. A
// sender whose commit was not answered asks so again.
func (s *Store) placed(ctx context.Context, start contract.UploadStart, sum string, wait time.Duration) (contract.Upload, error) {
	st, err := s.digests.Stat(ctx, start.Path, "", 0, wait)
	out := contract.Upload{Status: contract.UploadCommitted, Path: st.Path, Missing: []contract.Range{}, ETag: st.ETag}
	switch {
	case err == nil && st.SHA256 == sum:
		return out, nil
	case err == nil && st.SHA256 == "" && st.SizeBytes == start.SizeBytes && !st.IsDir:
		out.Status = contract.UploadHashing
		return out, nil
	}
	return out, fmt.Errorf("upload to %q: %w", start.Path, ErrNoUpload)
}

// result is the error of a call about an upload, with its path. An upload whose part file is lost or
// has other bytes than the sender's file ends.
func (s *Store) result(one *upload, err error) error {
	if errors.Is(err, ErrNoUpload) || errors.Is(err, ErrDigest) {
		s.remove(one)
	}
	return one.wrap(err)
}

func checkStart(start contract.UploadStart) error {
	if start.SizeBytes < 0 || start.Version == "" || max(len(start.Version), len(start.Source)) > contract.MaxUploadVersion || start.SHA256 != "" && !contract.SHA256Pattern().MatchString(start.SHA256) {
		return fmt.Errorf("upload to %q: %w: the size and a version of at most %d bytes are required, and a SHA-256 in lower-case hex is allowed", start.Path, ErrBadUpload, contract.MaxUploadVersion)
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
func (s *Store) Put(id string, offset, length int64, body io.Reader) error {
	one, err := s.get(id)
	if err != nil {
		return err
	}
	return s.result(one, one.put(contract.Range{Offset: offset, Length: length}, body))
}

// Drop deletes an upload that its sender gives up, with the bytes received so far. A committed
// file stays.
func (s *Store) Drop(id string) error {
	one, err := s.get(id)
	if err != nil {
		return err
	}
	if one.busy() {
		return fmt.Errorf("upload %q: %w: it is being committed", id, files.ErrBusy)
	}
	s.remove(one)
	return nil
}

// get is the upload with this id, which counts as used now.
func (s *Store) get(id string) (*upload, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.all[id]
	if !ok {
		return nil, fmt.Errorf("upload %q: %w", id, ErrNoUpload)
	}
	one.used = time.Now()
	return one, nil
}

// find is the upload that an equal start made, or nil.
func (s *Store) find(start contract.UploadStart) *upload {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if one.spec == start {
			one.used = time.Now()
			return one
		}
	}
	return nil
}

// add is a new upload, locked until it is created. It ends an earlier one of the same source,
// which nobody can resume.
func (s *Store) add(start contract.UploadStart) (*upload, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.all {
		earlier := other.spec.Path == start.Path && other.spec.Source == start.Source && start.Source != "" && other.spec.Version != start.Version
		if earlier && !other.busy() {
			s.removeLocked(other)
		}
	}
	if !s.trimLocked(contract.MaxUploads - 1) {
		return nil, fmt.Errorf("upload to %q: %w: %d uploads are being committed", start.Path, files.ErrBusy, contract.MaxUploads)
	}
	one := s.newUpload(newUploadID(), start)
	one.mu.Lock()
	s.all[one.id] = one
	return one, nil
}

func (s *Store) remove(one *upload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(one)
}

// removeLocked drops an upload. Dropping happens under the lock, so that a new upload does not
// get the same part file before it is gone.
func (s *Store) removeLocked(one *upload) {
	if s.all[one.id] == one {
		delete(s.all, one.id)
		one.drop()
	}
}

// trimLocked drops the uploads that were not used for keepUploads, and the least recently used
// ones beyond the bound. Uploads in work are not dropped. It reports whether the bound is kept.
func (s *Store) trimLocked(most int) bool {
	newestFirst := slices.SortedFunc(maps.Values(s.all), func(a, b *upload) int { return b.used.Compare(a.used) })
	var idle []*upload
	for _, one := range newestFirst {
		if !one.busy() {
			idle = append(idle, one)
		}
	}
	kept := len(newestFirst) - len(idle)
	for _, one := range idle {
		if kept >= most || time.Since(one.used) > keepUploads {
			s.removeLocked(one)
		} else {
			kept++
		}
	}
	return kept <= most
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
