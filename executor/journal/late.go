package journal

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"syscall"
)

const (
	// maxUnwrittenTotal bounds the events of all executions that wait in memory, in
	// bytes. See maxUnwritten.
	maxUnwrittenTotal = 64 << 20
	// maxFailures ends one flush. After one failure others may still succeed, because
	// a state needs less room than a log; thousands of failures would only load the disk.
	maxFailures = 16
)

// InMemoryReason is the reason of an execution that a full disk keeps from being saved.
const InMemoryReason = "the VM's disk is full: this run is kept only in the executor's memory and is lost when the executor ends; delete files on the VM, which code run here can still do"

// isFull reports whether err means that the disk has no room.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, ErrDiskFull)
}

// late knows which executions are in memory only, with a part of their events or with their last
// state, and writes them as soon as the disk can take them.
type late struct {
	log *slog.Logger
	one sync.Mutex // one flush at a time

	mu       sync.Mutex
	memory   int64 // bytes of events in memory
	records  map[*Record]bool
	flushing bool
}

// add has flush write the record again. cause is the error that was met, nil if none.
func (l *late) add(record *Record, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.records) == 0 && cause != nil {
		l.log.Error("an execution could not be saved; saving is retried until it succeeds", "execution_id", record.ID, "err", cause)
	}
	l.records[record] = true
}

// remove undoes add.
func (l *late) remove(record *Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.records, record)
}

func (l *late) needsFlush() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.records) > 0 || l.flushing
}

// flush writes what could not be written before.
func (l *late) flush() {
	l.one.Lock()
	defer l.one.Unlock()
	l.mu.Lock()
	waiting := slices.Collect(maps.Keys(l.records))
	l.flushing = true
	l.mu.Unlock()
	failed := 0
	for _, record := range waiting {
		l.remove(record) // first, because a concurrent failure adds it again
		if err := record.flush(); err != nil {
			l.add(record, nil)
			if failed++; failed == maxFailures {
				break
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flushing = false; len(waiting) > 0 && len(l.records) == 0 {
		l.log.Info("all executions are saved again", "count", len(waiting))
	}
}

// allocate takes memory for n bytes of events, or gives it back; false if there is none left.
func (l *late) allocate(n int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > 0 && l.memory+n > maxUnwrittenTotal {
		return false
	}
	l.memory += n
	return true
}
