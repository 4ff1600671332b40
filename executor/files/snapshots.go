package files

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// maxSnapshots bounds what is kept of folders read, in bytes all together: some
	// 300,000 names. A folder of more is read for every page. Kept past its time is at
	// most this, until the next listing.
	maxSnapshots = 32 << 20
	// keepSnapshot is how long pages may come from one reading of a folder.
	keepSnapshot = 30 * time.Second
)

// snapshot is a folder's names as one reading of it gave them.
type snapshot struct {
	made        time.Time
	entries     []entry // sorted
	files, dirs int
	bytes       int64
}

// bytes is about what an entry takes in memory.
func (e entry) bytes() int64 {
	const fixed = 64
	if e.shown != e.name {
		return fixed + int64(len(e.name)+len(e.shown))
	}
	return fixed + int64(len(e.name)) // one string
}

// snapshots are the folders that are being listed page by page. Without them each page
// of a big folder reads all of it. A first page always reads the folder anew, so an
// enumeration never shows less than what was there when it began.
type snapshots struct {
	most  int64        // bytes; maxSnapshots
	reads atomic.Int64 // of whole folders so far

	mu    sync.Mutex
	kept  map[string]snapshot
	bytes int64
}

// snapshotKey tells a folder, and the way to it: which of its links lead back depends on
// that.
func snapshotKey(at place, shown string) string {
	var inode uint64
	if st, ok := at.info.Sys().(*syscall.Stat_t); ok {
		inode = st.Ino
	}
	return fmt.Sprintf("%d %q %q", inode, at.path(), shown)
}

// take is the last reading of a folder, if it is young enough.
func (s *snapshots) take(key string) (snapshot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	one, ok := s.kept[key]
	return one, ok
}

// keep remembers a reading, in place of the oldest ones where there is no room.
func (s *snapshots) keep(key string, one snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	s.remove(key)
	for s.bytes+one.bytes > s.most && len(s.kept) > 0 {
		oldest := ""
		for k, other := range s.kept {
			if oldest == "" || other.made.Before(s.kept[oldest].made) {
				oldest = k
			}
		}
		s.remove(oldest)
	}
	if s.kept == nil {
		s.kept = map[string]snapshot{}
	}
	s.kept[key] = one
	s.bytes += one.bytes
}

func (s *snapshots) drop(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(key)
}

// expire forgets what is too old. The lock is held.
func (s *snapshots) expire() {
	for key, one := range s.kept {
		if time.Since(one.made) > keepSnapshot {
			s.remove(key)
		}
	}
}

// remove forgets a reading. The lock is held.
func (s *snapshots) remove(key string) {
	if one, ok := s.kept[key]; ok {
		s.bytes -= one.bytes
		delete(s.kept, key)
	}
}
