package uploads

import (
	"container/list"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
)

const (
	maxCommitted = 256                // committed uploads remembered; the one untouched longest goes first
	keepUploads  = 7 * 24 * time.Hour // an upload untouched for longer is dropped
	sweepEvery   = time.Hour
)

// Store takes files in, piece by piece and in any order. Each arrives in a
// hidden part beside its target and gets its name once its digest is right. What
// arrived outlives the executor.
type Store struct {
	roots   *files.Roots
	dir     string
	commits chan *upload  // at most once each
	batches chan struct{} // holds one while a batch is worked on

	mu    sync.Mutex
	known map[string]*list.Element // of *touched
	order *list.List               // the one touched last is at the back
}

// touched is an upload, and when it was asked for last.
type touched struct {
	*upload
	at time.Time
}

// Open takes up the uploads in dir, which is made when missing. What can't
// be read there is dropped: its sender begins anew.
func Open(roots *files.Roots, dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of uploads: %w", err)
	}
	if err := removeLeftovers(roots, filepath.Join(dir, leftoversFile)); err != nil {
		return nil, fmt.Errorf("removing what a batch left: %w", err)
	}
	folders, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the folder of uploads: %w", err)
	}
	u := &Store{
		roots: roots, dir: dir, commits: make(chan *upload, contract.MaxUploads), batches: make(chan struct{}, 1),
		known: map[string]*list.Element{}, order: list.New(),
	}
	var all []*touched
	for _, folder := range folders {
		if one, err := u.recover(folder.Name()); err != nil {
			os.RemoveAll(filepath.Join(dir, folder.Name()))
		} else {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b *touched) int { return a.at.Compare(b.at) })
	for _, one := range all {
		u.known[one.id] = u.order.PushBack(one)
	}
	u.sweep(time.Now().Add(-keepUploads))
	u.trim(contract.MaxUploads)
	return u, nil
}

var isUploadID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// recover reads one upload's folder.
func (u *Store) recover(id string) (*touched, error) {
	if !isUploadID.MatchString(id) {
		return nil, ErrNoUpload
	}
	j, rec, got, err := openJournal(filepath.Join(u.dir, id))
	if err != nil {
		return nil, err
	}
	if uploadID(rec.UploadStart) != id {
		return nil, ErrNoUpload
	}
	one := u.make(id, rec.UploadStart)
	one.journal, one.record, one.got = j, rec, got
	at, err := j.touched()
	if rec.ETag != "" {
		one.settle(rec)
	} else if one.wasPlaced() {
		one.committed(one.record)
	}
	return &touched{one, at}, err
}

func (u *Store) make(id string, s contract.UploadStart) *upload {
	return &upload{
		id: id, asked: s, roots: u.roots, journal: &journal{dir: filepath.Join(u.dir, id)},
		record: record{UploadStart: s}, status: contract.UploadReceiving,
	}
}

// Run commits uploads and drops forgotten ones until ctx ends.
func (u *Store) Run(ctx context.Context) error {
	var sweeper sync.WaitGroup
	sweeper.Go(func() { u.sweepUntil(ctx) })
	files.HashEach(ctx, u.commits, func(ctx context.Context, one *upload) { one.finish(ctx) })
	sweeper.Wait()
	return nil
}

func (u *Store) sweepUntil(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			u.sweep(time.Now().Add(-keepUploads))
		case <-ctx.Done():
			return
		}
	}
}

var isDigest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Start begins an upload, or resumes the one that was begun by the same call.
// Missing folders are made; what is a folder itself is made and committed at once.
// ErrDiskFull means that what is missing does not fit.
func (u *Store) Start(s contract.UploadStart) (contract.Upload, error) {
	if _, err := u.roots.Absolute(s.Path); err != nil {
		return contract.Upload{}, err
	}
	if strings.HasSuffix(s.Path, "/") && s.SizeBytes == 0 && s.SHA256 == "" {
		path, err := u.roots.MakeFolder(s.Path)
		if err != nil {
			return contract.Upload{}, fmt.Errorf("making the folder %q: %w", s.Path, err)
		}
		return contract.Upload{Status: contract.UploadCommitted, Path: path, Missing: []contract.Range{}}, nil
	}
	if s.SizeBytes < 0 || !isDigest.MatchString(s.SHA256) {
		return contract.Upload{}, fmt.Errorf("upload to %q: %w: it needs its size and its SHA-256", s.Path, ErrBadUpload)
	}
	one, made, err := u.take(s)
	if err != nil {
		return contract.Upload{}, err
	}
	out, err := one.start()
	if err != nil && made {
		u.forget(one)
	}
	return out, one.explain(err)
}

// Put keeps body as the bytes from offset on. proven says that its digest was
// checked; what was not is sent again when the whole turns out wrong. Bytes that
// are there already are passed over. With ErrDiskFull what fitted is kept.
func (u *Store) Put(id string, offset int64, body []byte, proven bool) (contract.Upload, error) {
	one, err := u.get(id)
	if err != nil {
		return contract.Upload{}, err
	}
	out, err := one.put(offset, body, proven)
	return out, one.explain(err)
}

// Get is the upload as it stands; one that is hashing once that ended, or after
// wait. What the last commit failed with is told until bytes come again.
func (u *Store) Get(ctx context.Context, id string, wait time.Duration) (contract.Upload, error) {
	one, err := u.get(id)
	if err != nil {
		return contract.Upload{}, err
	}
	out, err := one.await(ctx, wait)
	return out, one.explain(err)
}

// Commit has the whole checked and put in its place, and waits up to wait for
// that. It answers receiving when something is missing: unproven bytes that turned
// out wrong, too. ErrDigest means that all came under signature and is wrong all
// the same: the upload begins anew.
func (u *Store) Commit(ctx context.Context, id string, wait time.Duration) (contract.Upload, error) {
	one, err := u.get(id)
	if err != nil {
		return contract.Upload{}, err
	}
	if err := one.commit(u.commits); err != nil {
		return contract.Upload{}, one.explain(err)
	}
	out, err := one.await(ctx, wait)
	return out, one.explain(err)
}

func (u *Store) get(id string) (*upload, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.touch(id)
}

// touch is get with the lock held.
func (u *Store) touch(id string) (*upload, error) {
	e, ok := u.known[id]
	if !ok {
		return nil, fmt.Errorf("upload %q: %w", id, ErrNoUpload)
	}
	e.Value.(*touched).at = time.Now()
	u.order.MoveToBack(e)
	return e.Value.(*touched).upload, nil
}

// take is the upload begun by s, made when there is none.
func (u *Store) take(s contract.UploadStart) (one *upload, made bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	id := uploadID(s)
	if one, err := u.touch(id); err == nil {
		return one, false, nil
	}
	if !u.trim(contract.MaxUploads - 1) {
		return nil, false, fmt.Errorf("upload to %q: %w: %d uploads are being committed", s.Path, files.ErrBusy, contract.MaxUploads)
	}
	one = u.make(id, s)
	u.known[id] = u.order.PushBack(&touched{one, time.Now()})
	return one, true, nil
}

// forget drops an upload that could not begin.
func (u *Store) forget(one *upload) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e, ok := u.known[one.id]; ok && e.Value.(*touched).upload == one {
		u.drop(e)
	}
}

// drop is what removes an upload. The lock is held, so that no new one gets its
// folder meanwhile.
func (u *Store) drop(e *list.Element) {
	one := e.Value.(*touched)
	u.order.Remove(e)
	delete(u.known, one.id)
	one.drop()
}

// sweep drops what was not touched since before.
func (u *Store) sweep(before time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for e := u.order.Front(); e != nil && e.Value.(*touched).at.Before(before); {
		next := e.Next()
		if _, busy := e.Value.(*touched).standing(); !busy {
			u.drop(e)
		}
		e = next
	}
}

// trim drops what is beyond the bounds, untouched longest first, and reports
// whether that was enough: what is being worked on stays. The lock is held.
func (u *Store) trim(maxReceiving int) bool {
	var receiving, committed []*list.Element
	working := 0
	for e := u.order.Front(); e != nil; e = e.Next() {
		switch done, busy := e.Value.(*touched).standing(); {
		case busy:
			working++
		case done:
			committed = append(committed, e)
		default:
			receiving = append(receiving, e)
		}
	}
	surplus := min(len(receiving), max(0, working+len(receiving)-maxReceiving))
	for _, e := range receiving[:surplus] {
		u.drop(e)
	}
	for _, e := range committed[:max(0, len(committed)-maxCommitted)] {
		u.drop(e)
	}
	return working+len(receiving)-surplus <= maxReceiving
}
