// Package audit records, in a file, who asked the executor for what: one line of JSON for
// each request that a holder of the secret signed, and two for each execution, when it was
// submitted and when it ended.
//
// It must not record what users typed, except code if Config.Code is set: no queries,
// bodies, outputs, answers to input() or names of files. It must not stop executions: a file
// that cannot be written, or only slowly, costs records, which are counted. Its file and its
// memory are bounded. Start reading at Log; file.go is what is on disk, queue.go what waits
// to be written.
package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"colabrelay/shared/contract"
)

const (
	// maxDelay is how long a submission waits for its record to be in the file. After one
	// that waited in vain, none waits until the file can be written again.
	maxDelay = time.Second
	// retryPause is the time between two attempts to write to a file that fails.
	retryPause = time.Second
	// closeTime is how long Run goes on writing after its context has ended.
	closeTime = time.Second
	// summaryEvery is how often turned-away requests beyond their limit are summed up, and
	// whenever their number since then has doubled: a kill costs less than half of the count.
	summaryEvery = time.Minute
	// maxOpen is how many unfinished executions are remembered with their source. The queue
	// accepts fewer.
	maxOpen = 1024
)

// Limits on what one holder of the secret, or whoever repeats their requests, can write.
const (
	turnedAwayBurst     = 60 // lines of requests that were signed but turned away
	turnedAwayPerSecond = 1
	codeBurst           = 16 << 20 // bytes of code
	codePerSecond       = 64 << 10
)

// Config says what is recorded and where.
type Config struct {
	Path       string // of the file
	Code       bool   // record the code of executions too
	KeyID      string
	InstanceID string
	Version    string
	Log        *slog.Logger // learns when the file cannot be written
	Limits     Limits
}

// Log is an audit log. The methods of a nil Log do nothing.
type Log struct {
	cfg     Config
	file    *file
	queue   *queue
	delay   time.Duration // see maxDelay
	stalled atomic.Bool   // a record is overdue: nobody waits for the next ones

	mu         sync.Mutex
	open       map[string]Source // by submit id: unfinished executions
	code       bucket
	turnedAway bucket
	unrecorded omission // turned-away requests beyond the limit that no line counts yet
	counted    int      // such requests that lines count, since the last summary
}

// Open opens or creates the file; its folder must exist. It fails for anything but a regular
// file of this user that no other executor uses. A torn last line is removed.
func Open(cfg Config) (*Log, error) {
	limits := cfg.Limits.withDefaults()
	f, was, err := openFile(cfg.Path, limits, cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("audit log %q: %w", cfg.Path, err)
	}
	l := &Log{
		cfg:        cfg,
		file:       f,
		queue:      newQueue(limits.QueueBytes),
		delay:      maxDelay,
		open:       map[string]Source{},
		code:       bucket{most: codeBurst, perSecond: codePerSecond},
		turnedAway: bucket{most: turnedAwayBurst, perSecond: turnedAwayPerSecond},
	}
	l.put(record{Event: eventStarted, Version: cfg.Version, InstanceID: cfg.InstanceID, PID: os.Getpid(), TornBytes: was.torn, AfterUncleanEnd: was.unclean, Cause: was.cause()})
	return l, nil
}

// Request records a signed request that was answered.
func (l *Log) Request(r Request) {
	if l == nil {
		return
	}
	if !r.Admitted && !l.admitTurnedAway() {
		return
	}
	l.put(r.record())
}

// admitTurnedAway reports whether one more turned-away request may be recorded. Whoever
// carries the traffic can repeat captured requests as fast as they like.
func (l *Log) admitTurnedAway() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.turnedAway.take(1, now) {
		return true
	}
	l.unrecorded.add(now)
	if l.unrecorded.count >= l.counted {
		l.countLocked()
	}
	return false
}

// Submitted records that s is about to be submitted, and waits a moment for the record to be
// in the file, so that code which ends the executor does not hide itself.
func (l *Log) Submitted(from Source, s contract.Submit) {
	if l == nil {
		return
	}
	sum := sha256.Sum256([]byte(s.Code))
	r := record{Event: eventSubmitted, Source: from, SubmitID: s.RequestID, CodeSHA256: hex.EncodeToString(sum[:]), CodeBytes: len(s.Code)}
	l.mu.Lock()
	if len(l.open) < maxOpen {
		l.open[s.RequestID] = from
	}
	if l.cfg.Code {
		r.addCode(s.Code, &l.code)
	}
	l.mu.Unlock()
	l.await(l.put(r))
}

// await waits until a record is in the file, unless the file is known to be in trouble.
func (l *Log) await(written <-chan struct{}) {
	if l.stalled.Load() {
		return
	}
	timer := time.NewTimer(l.delay)
	defer timer.Stop()
	select {
	case <-written:
	case <-timer.C:
		l.stalled.Store(true)
	}
}

// Refused forgets a submission that was not accepted.
func (l *Log) Refused(submitID string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, submitID)
}

// Ended records how an execution ended. It never waits.
func (l *Log) Ended(x contract.Execution, codeSHA256 string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	from := l.open[x.RequestID]
	delete(l.open, x.RequestID)
	l.mu.Unlock()
	l.put(endOf(x, from, codeSHA256))
}

// put queues a record. The channel is closed when the record is in the file or dropped.
func (l *Log) put(r record) (written <-chan struct{}) {
	r.Time = time.Now().UTC()
	r.KeyID = l.cfg.KeyID
	return l.queue.put(r.line(), r.Time)
}
