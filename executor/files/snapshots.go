package files

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// maxSnapshots is how many bytes all snapshots together may take: some 300,000 names. A
	// larger folder is read again for every page. Expired snapshots stay in memory until
	// the next listing.
	maxSnapshots = 32 << 20
	// keepSnapshot is how long pages may come from the same snapshot.
	keepSnapshot = 30 * time.Second
)

// snapshot is the entries of a folder when it was read.
type snapshot struct {
	made        time.Time
	entries     []entry // sorted
	files, dirs int
	bytes       int64
}

// bytes estimates the memory of an entry.
func (e entry) bytes() int64 {
	n := 64 + len(e.name)
	if e.shown != e.name { // otherwise they are one string
		n += len(e.shown)
	}
	return int64(n)
}

// snapshots are kept of folders that are being listed page by page, because otherwise every
// page reads the whole folder. A first page always reads the folder, so a listing shows
// everything that existed when it began.
type snapshots struct {
	most  int64        // bytes; maxSnapshots
	reads atomic.Int64 // folders read so far, for tests

	mu    sync.Mutex
	kept  map[string]snapshot
	bytes int64
}

// snapshotKey identifies a folder and the path by which it was requested, on which its
// loops depend.
func snapshotKey(at location, shown string) string {
	var inode uint64
	if st, ok := at.info.Sys().(*syscall.Stat_t); ok {
		inode = st.Ino
	}
	return fmt.Sprintf("%d %q %q", inode, at.path(), shown)
}

// get returns the snapshot of a folder if there is one that has not expired.
func (s *snapshots) get(key string) (snapshot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked()
	one, ok := s.kept[key]
	return one, ok
}

// keep stores a snapshot. It removes the oldest ones if there is not enough space.
func (s *snapshots) keep(key string, one snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked()
	s.removeLocked(key)
	for s.bytes+one.bytes > s.most && len(s.kept) > 0 {
		oldest := ""
		for k, other := range s.kept {
			if oldest == "" || other.made.Before(s.kept[oldest].made) {
				oldest = k
			}
		}
		s.removeLocked(oldest)
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
	s.removeLocked(key)
}

// expireLocked removes the snapshots that are too old.
func (s *snapshots) expireLocked() {
	for key, one := range s.kept {
		if time.Since(one.made) > keepSnapshot {
			s.removeLocked(key)
		}
	}
}

// removeLocked removes one snapshot.
func (s *snapshots) removeLocked(key string) {
	if one, ok := s.kept[key]; ok {
		s.bytes -= one.bytes
		delete(s.kept, key)
	}
}
