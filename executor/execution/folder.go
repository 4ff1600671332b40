package execution

import (
	"os"
	"path/filepath"

	"github.com/google/uuid"
)

// folder is where the next execution will be kept, its files open already. One
// is made ahead while the kernel is idle: making it costs a tenth of a quick run.
type folder struct {
	dir    string
	state  *os.File
	events *os.File // the log's first segment
}

func newFolder(parent string) (*folder, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	f := &folder{dir: filepath.Join(parent, id.String())}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return nil, err
	}
	if f.state, err = openAppend(filepath.Join(f.dir, stateFile)); err == nil {
		f.events, err = openAppend(newSegment(f.dir, 0, 0).path)
	}
	if err != nil {
		f.remove()
		return nil, err
	}
	return f, nil
}

func openAppend(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
}

// unmadeFolder is where a folder will be once the disk has room for it.
func unmadeFolder(parent string) (*folder, error) {
	id, err := uuid.NewV7()
	return &folder{dir: filepath.Join(parent, id.String())}, err
}

// remove undoes newFolder.
func (f *folder) remove() {
	if f.state != nil {
		f.state.Close()
	}
	if f.events != nil {
		f.events.Close()
	}
	os.RemoveAll(f.dir)
}

// nextFolder is the one made ahead, or a new one. The lock is held.
func (q *Queue) nextFolder() (*folder, error) {
	f := q.spare
	q.spare = nil
	if f != nil && deleted(f.state) {
		f.remove()
		f = nil
	}
	if q.reserve.lost() {
		q.mend()
	}
	if f != nil {
		return f, nil
	}
	f, err := newFolder(q.cfg.Dir)
	if isFull(err) {
		return unmadeFolder(q.cfg.Dir)
	}
	return f, err
}

// Mend writes down again what a deleted state dir held of executions: what is known
// of each. Their output is gone, but for that of a log that is still open.
func (q *Queue) Mend() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mend()
}

func (q *Queue) mend() {
	if err := os.MkdirAll(q.cfg.Dir, 0o700); err != nil {
		q.cfg.Log.Error("making the execution log's folder again", "component", "execution", "err", err)
		return
	}
	q.reserve.comeBack()
	count := 0
	for _, e := range q.order {
		if e.gone() {
			q.reserve.again(e)
			count++
		}
	}
	if count > 0 {
		q.cfg.Log.Warn("folders of executions were deleted; what is known of them is written again", "component", "execution", "count", count)
	}
	if err := q.past.mend(); err != nil {
		q.cfg.Log.Error("writing the record of past executions again", "component", "execution", "err", err)
	}
	q.signal() // the runner flushes
}

// makeSpare makes a folder ahead when the kernel is idle. Where it can't be
// made, the next submit tries again and tells.
func (q *Queue) makeSpare() {
	if !q.wantsSpare() {
		return
	}
	f, err := newFolder(q.cfg.Dir) // without the lock: a submit need not wait for it
	if err != nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.spare = f // only the runner makes them, and it closes the queue
}

func (q *Queue) wantsSpare() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.spare == nil && !q.closing && q.running == nil && len(q.pending) == 0
}
