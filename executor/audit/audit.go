// Package audit records, in a file, who asked the executor for what: one line of JSON for
// each request that a holder of the secret signed, and two for each execution, when it was
// submitted and when it ended.
//
// It must not record what users typed, except code if Config.Code is set: no queries,
// bodies, outputs, answers to input() or names of files. It must not stop executions: a file
// that cannot be written, or only slowly, costs records, which are counted. Its files and its
// memory are bounded. Start reading at Log.
package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf16"

	"colabrelay/executor/logfile"
	"colabrelay/shared/contract"
)

// Bounds on what one holder of the secret, or whoever repeats their requests, can write.
const (
	fileBytes = 64 << 20
	oldFiles  = 4 // with the current one, 320 MiB
	// maxTurnedAway is how many lines the requests of a minute get that were signed but turned
	// away. The others are counted.
	maxTurnedAway = 60
	// codePerMinute is how much code is recorded in a minute.
	codePerMinute = 4 << 20
)

var errTurnedAway = errors.New("too many signed requests that were turned away: repeated, outdated or over the rate limit")

// Config says what is recorded and where.
type Config struct {
	Path       string // of the file
	Code       bool   // record the code of executions too
	KeyID      string
	InstanceID string
	Version    string
	Log        *slog.Logger // learns when the file cannot be written
}

// Log is an audit log. The methods of a nil Log do nothing.
type Log struct {
	cfg  Config
	file *logfile.File

	mu         sync.Mutex
	turnedAway int // requests in this minute
	code       int // bytes in this minute
}

// Open opens or creates the file; its folder must exist. It fails for anything but a regular
// file of this user that no other executor uses.
func Open(cfg Config) (l *Log, err error) {
	l = &Log{cfg: cfg}
	l.file, err = logfile.Open(logfile.Config{
		Path: cfg.Path, MaxBytes: fileBytes, Old: oldFiles, Omitted: l.omitted,
		Open: func() (logfile.Disk, error) { return openFile(cfg.Path) },
	})
	if err != nil {
		return nil, fmt.Errorf("audit log %q: %w", cfg.Path, err)
	}
	l.put(record{Event: eventStarted, Version: cfg.Version, InstanceID: cfg.InstanceID, PID: os.Getpid()})
	return l, nil
}

// Run counts minutes until ctx ends, and records each second what is missing; then it records the
// executor's end.
func (l *Log) Run(ctx context.Context) error {
	if l == nil {
		return nil
	}
	defer l.file.Close()
	minute, second := time.NewTicker(time.Minute), time.NewTicker(time.Second)
	defer minute.Stop()
	defer second.Stop()
	for failing := false; ; {
		select {
		case <-minute.C:
			l.mu.Lock()
			l.turnedAway, l.code = 0, 0
			l.mu.Unlock()
		case <-second.C:
			if _, err := l.file.Write(nil); failing != (err != nil) {
				failing = !failing
				l.report(err)
			}
		case <-ctx.Done():
			l.put(record{Event: eventStopped})
			return nil
		}
	}
}

// report tells the executor's own log when the file begins to fail and when it works again.
func (l *Log) report(err error) {
	if err != nil {
		l.cfg.Log.Warn("the audit log cannot be written; executions continue, and records are omitted and counted", "component", "audit", "path", l.cfg.Path, "err", err)
	} else {
		l.cfg.Log.Warn("the audit log is written again", "component", "audit", "path", l.cfg.Path)
	}
}

// Request records a signed request that was answered.
func (l *Log) Request(r Request) {
	if l != nil && (r.Admitted || l.tellsTurnedAway()) {
		l.put(record{Event: eventRequest, Request: r})
	}
}

// tellsTurnedAway reports whether a request that was turned away has a line. Whoever carries the
// traffic can repeat captured requests as fast as they like. The others are counted, and their
// number is told each second.
func (l *Log) tellsTurnedAway() bool {
	l.mu.Lock()
	l.turnedAway++
	tells := l.turnedAway <= maxTurnedAway
	l.mu.Unlock()
	if !tells {
		l.file.Omit(errTurnedAway)
	}
	return tells
}

// Submitted records that s is about to be submitted. The record is in the file before the code
// runs, so that code which ends the executor does not hide itself.
func (l *Log) Submitted(from Source, s contract.Submit) {
	if l == nil {
		return
	}
	sum := sha256.Sum256([]byte(s.Code))
	r := record{Event: eventSubmitted, Request: Request{Source: from}, SubmitID: s.RequestID, CodeSHA256: hex.EncodeToString(sum[:]), CodeBytes: len(s.Code)}
	if l.cfg.Code {
		r.Code = cut(s.Code, l.roomFor(min(len(s.Code), maxCode)))
		r.CodeCut = len(r.Code) < len(s.Code)
	}
	l.put(r)
}

// roomFor returns how many of so many bytes of code are recorded.
func (l *Log) roomFor(bytes int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.code += bytes; l.code > codePerMinute {
		return 0
	}
	return bytes
}

// Ended records how an execution ended. Its submit_id leads to who submitted it. Its duration counts
// from its start in the kernel; one that never started has none.
func (l *Log) Ended(x contract.Execution, codeSHA256 string) {
	if l == nil {
		return
	}
	r := record{
		Event: eventEnded, Request: Request{ExecutionID: x.ExecutionID},
		SubmitID: x.RequestID, KernelID: x.KernelID, Outcome: x.Status, CodeSHA256: codeSHA256,
	}
	if x.StartedAt != nil && x.FinishedAt != nil {
		r.DurationMS = new(x.FinishedAt.Sub(*x.StartedAt).Milliseconds())
	}
	l.put(r)
}

// put writes a line. An error is told by Run, and counted in the file.
func (l *Log) put(r record) { l.file.Write(l.line(r)) }

// omitted is the line for records that are not in the log.
func (l *Log) omitted(count int, since time.Time, cause error) []byte {
	return l.line(record{Event: eventOmitted, Count: count, Since: &since, Cause: cause.Error()})
}

func (l *Log) line(r record) []byte {
	r.Time, r.KeyID = time.Now().UTC(), l.cfg.KeyID
	return r.line()
}

// openFile opens or creates the file, for this user only, and locks it. Whoever can write to its
// folder must not be able to lead the log elsewhere.
func openFile(path string) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil {
		if err := suitable(info); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, withoutPath(err)
	}
	info, err := f.Stat()
	if err == nil {
		err = suitable(info) // another file may have taken the name
	}
	if err == nil {
		err = f.Chmod(0o600)
	}
	if err == nil && syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		err = errors.New("another executor writes to it; choose another file")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// withoutPath removes the path from an error whose text has it already.
func withoutPath(err error) error {
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		return inner.Err
	}
	return err
}

// suitable returns why a file cannot be the log.
func suitable(info fs.FileInfo) error {
	stat := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode().Type() == fs.ModeSymlink:
		return errors.New("must not be a symbolic link; name the file itself")
	case !info.Mode().IsRegular():
		return errors.New("must be a regular file; choose another name")
	case int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("belongs to user %d; choose another file", stat.Uid)
	case stat.Nlink > 1:
		return errors.New("has another name too (a hard link); choose another file")
	}
	return nil
}

// Check returns what would keep the file from being opened.
func Check(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err == nil:
		return suitable(info)
	case errors.Is(err, fs.ErrNotExist):
		return syscall.Access(filepath.Dir(path), 0o3) // to write a new file
	}
	return withoutPath(err)
}

// Bounds of the fields that outsiders choose, in bytes. A longer one is cut.
const (
	maxMethod = 16
	maxPath   = 256
	maxField  = 128
	maxCode   = 64 << 10
)

// event is what a line tells.
type event string

const (
	eventStarted   event = "executor_started"
	eventStopped   event = "executor_stopped"
	eventRequest   event = "request"
	eventSubmitted event = "execution_submitted"
	eventEnded     event = "execution_ended"
	eventOmitted   event = "records_omitted"
)

// Source is where a request came from.
type Source struct {
	RequestID string `json:"request_id,omitempty"` // also in the executor's log and in error answers
	Caller    string `json:"caller,omitempty"`     // the relay process, as far as it tells the truth
	Address   string `json:"address,omitempty"`    // as the tunnel reported it, else of the connection
}

// Request is a request with a correct signature, and its answer.
type Request struct {
	Source
	Method      string        `json:"method,omitempty"`
	Path        string        `json:"path,omitempty"`   // without the query
	Status      int           `json:"status,omitempty"` // of HTTP
	Error       contract.Code `json:"error,omitempty"`
	Received    int64         `json:"bytes_received,omitempty"` // of the sealed body
	Sent        int64         `json:"bytes_sent,omitempty"`     // of the sealed answer
	DurationMS  *int64        `json:"duration_ms,omitempty"`
	ExecutionID string        `json:"execution_id,omitempty"` // that a submit created or repeated
	// Admitted is false if the request was turned away: its time, executor or nonce was
	// wrong, it did not open, or it was over the rate limit.
	Admitted bool `json:"-"`
}

// record is one line. That of an execution has some of a request's fields, too.
type record struct {
	Time  time.Time `json:"time"`
	Event event     `json:"event"`
	KeyID string    `json:"key_id"`
	Request

	SubmitID   string          `json:"submit_id,omitempty"`
	KernelID   string          `json:"kernel_id,omitempty"`
	Outcome    contract.Status `json:"outcome,omitempty"`
	CodeSHA256 string          `json:"code_sha256,omitempty"`
	CodeBytes  int             `json:"code_bytes,omitempty"`
	Code       string          `json:"code,omitempty"`
	CodeCut    bool            `json:"code_cut,omitempty"` // Code is not all of it

	Version    string `json:"version,omitempty"`
	InstanceID string `json:"instance_id,omitempty"`
	PID        int    `json:"pid,omitempty"`

	Count int        `json:"count,omitempty"`
	Since *time.Time `json:"since,omitempty"`
	Cause string     `json:"cause,omitempty"`
}

// line is the record as it is written: one line of ASCII, whatever its fields contain.
func (r record) line() []byte {
	r.Method, r.Path, r.Address = cut(r.Method, maxMethod), cut(r.Path, maxPath), cut(r.Address, maxField)
	for _, field := range []*string{&r.RequestID, &r.Caller, &r.ExecutionID, &r.SubmitID, &r.KernelID, &r.CodeSHA256, &r.Cause} {
		*field = cut(*field, maxField)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("audit: %v", err)) // no field can fail
	}
	return append(ascii(raw), '\n')
}

// cut returns the first n bytes of s at most, without half a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// ascii escapes what encoding/json leaves as it is: a terminal takes DEL and U+0080 to
// U+009F for commands, and other characters reverse or hide text.
func ascii(raw []byte) []byte {
	out := make([]byte, 0, len(raw)+1)
	for _, r := range string(raw) {
		if r < 0x7f {
			out = append(out, byte(r))
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}
