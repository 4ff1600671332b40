package client

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/memory"
)

const (
	// leastWait is the shortest long poll that is worth a request.
	leastWait = 250 * time.Millisecond
	// An answer that arrives within quickAnswer comes from an execution that prints
	// all the time. The next request then waits a tenth of the time spent reading so
	// far, at most maxSpacing: without that such an execution costs 20 requests a second.
	quickAnswer = 500 * time.Millisecond
	maxSpacing  = 2 * time.Second
	// crowdPause is how long a call waits while others hold too many events.
	crowdPause = 100 * time.Millisecond
	// largestEvent is more than an executor puts into one event, which must always find room.
	largestEvent = 600 << 10
	// maxEndPages bounds the answers that Follow reads after the execution has finished. An
	// executor keeps 256 MiB of events, which pages of 64 KiB read in so many.
	maxEndPages = 4096
)

// ExecutionReader reads pages of an execution's events. *Client implements it.
type ExecutionReader interface {
	Execution(ctx context.Context, id string, offset int64, wait time.Duration, maxBytes int64) (contract.Execution, error)
	InstanceID() string
}

// FollowOptions are what differs between the callers of Follow.
type FollowOptions struct {
	// Visit gets each answer: the execution, the events that were not visited before,
	// and the offset after them in NextOffset. It reports whether to read on.
	Visit func(e contract.Execution) (more bool)
	// From is the offset of the first event to visit.
	From int64
	// Until is when Follow returns although the execution has not finished; zero means
	// never. The events of a finished execution are read to the end regardless.
	Until time.Time
	// Available limits Follow to the events that exist already.
	Available bool
	// FirstBytes is the size asked for in the answer that Follow begins with. Each
	// request asks for twice the size of the one before, up to MaxBytes. Zero means
	// MaxBytes from the first request on.
	FirstBytes int64
	MaxBytes   int64 // of one answer; 0 leaves it to the executor
	// Spacing returns how long to wait before the next request, and replaces the usual
	// spacing of answers that arrive quickly.
	Spacing func() time.Duration
	// Instance is the executor that runs the execution. When another one answers that
	// it does not know the execution, Follow fails with new_instance. Empty skips this.
	Instance string
}

// Follow reads an execution until its end is read, it waits for input, or a caller's
// condition in o holds. It begins with the answer e, or with e.ExecutionID alone when
// e.Status is empty. It returns the execution as last read, without events; an error
// means that reading failed, and does not affect the execution.
func Follow(ctx context.Context, vm ExecutionReader, e contract.Execution, o FollowOptions) (contract.Execution, error) {
	f := &follower{vm: vm, o: o, last: contract.Execution{ExecutionID: e.ExecutionID}, next: o.From, asked: o.FirstBytes, began: time.Now()}
	defer f.release()
	if e.Status != "" && !f.visit(e) {
		return f.last, nil
	}
	for f.timeLeft() {
		if err := f.pause(ctx); err != nil {
			return f.last, err
		}
		e, err := f.read(ctx)
		if err == nil {
			err = f.countEndPage(e.Status)
		}
		if err != nil || !f.visit(e) {
			return f.last, err
		}
	}
	return f.last, nil
}

// release returns the room for events that were taken in.
func (f *follower) release() {
	memory.Events.Return(f.taken)
	f.taken = 0
}

// countEndPage counts an answer of an execution that has finished. Without a bound, an executor
// that never says that it was the last one would hold the caller for ever.
func (f *follower) countEndPage(status contract.Status) error {
	if !status.Finished() {
		return nil
	}
	if f.endPages++; f.endPages > maxEndPages {
		return breaksBounds(fmt.Sprintf("the execution has finished, but its events do not end after %d answers", maxEndPages), nil)
	}
	return nil
}

// follower is one call of Follow.
type follower struct {
	vm      ExecutionReader
	o       FollowOptions
	last    contract.Execution // as last read, without events; its Status is empty before
	next    int64              // offset of the next event
	asked   int64              // size asked for in the last request, 0 for the default one
	taken   int64              // of memory.Events, for the last request
	behind  bool               // more events probably exist already
	crowded bool               // there was no room for the last answer's events
	began   time.Time
	elapsed time.Duration // of the last request; 0 before the first

	endPages int // answers that said that it has finished
}

// visit passes e to the caller and reports whether to read on.
func (f *follower) visit(e contract.Execution) bool {
	if f.crowded = !f.hasRoom(e.Events); f.crowded {
		f.last.Status = e.Status // the same events are read again, in smaller pieces
		return true
	}
	e.Events = f.unvisited(e.Events)
	f.next = max(f.next, e.NextOffset)
	e.NextOffset = f.next
	f.last = e
	f.last.Events = nil
	f.behind = f.full(e.Events) || e.Status.Finished() && len(e.Events) > 0
	more := f.o.Visit(e)
	f.release()
	switch {
	case !more, e.End, f.o.Available && !f.behind:
		return false
	case e.Status == contract.StatusWaitingForInput:
		n := len(e.Events)
		return n > 0 && e.Events[n-1].Type != contract.EventInputRequest
	}
	return true
}

// unvisited returns the events from f.next on, and moves f.next past them.
func (f *follower) unvisited(events []contract.Event) []contract.Event {
	fresh := events[:0:0]
	for _, ev := range events {
		if ev.Offset < f.next {
			continue
		}
		f.next = ev.Offset + 1
		if ev.Type == contract.EventGap {
			f.next = ev.Offset + max(ev.Events, 1)
		}
		fresh = append(fresh, ev)
	}
	return fresh
}

// full reports whether an answer is so close to the size asked for that the next
// events probably exist already.
func (f *follower) full(events []contract.Event) bool {
	return eventBytes(events) > cmp.Or(f.asked, contract.DefaultReadBytes)/2
}

// timeLeft reports whether another request is worth it.
func (f *follower) timeLeft() bool {
	return f.o.Available || f.last.Status == "" || f.last.Status.Finished() || f.left() >= leastWait
}

func (f *follower) left() time.Duration {
	if f.o.Until.IsZero() {
		return contract.MaxWait
	}
	return time.Until(f.o.Until)
}

// hasRoom reports whether there is room in the process for events that were not asked for with a part
// of memory.Events.
func (f *follower) hasRoom(events []contract.Event) bool {
	size := eventBytes(events)
	if f.taken > 0 || size <= largestEvent {
		return true
	}
	if !memory.Events.Take(size) {
		return false
	}
	f.taken = size
	return true
}

// pause spaces requests out, unless the events to read exist already.
func (f *follower) pause(ctx context.Context) error {
	if !f.crowded && (f.behind || f.last.Status == "") {
		return nil
	}
	select {
	case <-time.After(min(f.spacing(), f.left())):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *follower) spacing() time.Duration {
	switch {
	case f.crowded:
		return crowdPause
	case f.o.Spacing != nil:
		return f.o.Spacing()
	case f.elapsed == 0 || f.elapsed >= quickAnswer:
		return 0
	}
	return min(time.Since(f.began)/10, maxSpacing)
}

// read requests the next events.
func (f *follower) read(ctx context.Context) (contract.Execution, error) {
	f.asked = f.o.MaxBytes
	if f.o.FirstBytes > 0 {
		f.o.FirstBytes *= 2
		f.asked = min(f.o.FirstBytes, f.o.MaxBytes)
	}
	if f.asked > memory.Small && !(f.behind && memory.Events.Take(f.asked)) {
		f.asked = memory.Small // until there is much to read, and room for it
	} else if f.asked > memory.Small {
		f.taken = f.asked
	}
	wait := max(0, min(f.left(), contract.MaxWait))
	if f.o.Available || f.taken > 0 { // what takes room is read at once
		wait = 0
	}
	started := time.Now()
	e, err := f.vm.Execution(ctx, f.last.ExecutionID, f.next, wait, f.asked)
	f.elapsed = time.Since(started)
	return e, f.replaced(err)
}

// replaced returns new_instance in place of a not_found of another executor.
func (f *follower) replaced(err error) error {
	refused := refusal(err)
	if refused == nil || refused.Code != contract.CodeNotFound || f.o.Instance == "" || f.vm.InstanceID() == f.o.Instance {
		return err
	}
	return &contract.Error{Code: contract.CodeNewInstance, Message: "the VM behind this address is a new one; the run ended with the old VM", Hint: "run the setup code again"}
}

// Execution reads an execution's events from offset on. It waits up to wait (at most
// contract.MaxWait, less if ctx ends before) for an event. If maxBytes is 0 the executor chooses
// the size of the answer. An answer that is too long, which no executor sends, is not read: the
// error says where to read on.
func (c *Client) Execution(ctx context.Context, id string, offset int64, wait time.Duration, maxBytes int64) (contract.Execution, error) {
	path, err := executionPath(contract.PathExecution, id)
	if err != nil {
		return contract.Execution{}, err
	}
	e, err := c.execution(ctx, idempotent, func() request {
		wait := c.fitWait(ctx, wait)
		query := url.Values{"offset": {strconv.FormatInt(offset, 10)}, "wait_seconds": {decimal(wait)}}
		if ctx.Value(behindInputKey{}) != nil {
			query.Set(contract.QueryBehindInput, "true")
		}
		if maxBytes > 0 {
			query.Set("max_bytes", strconv.FormatInt(maxBytes, 10))
		}
		return request{method: http.MethodGet, path: path, query: query, wait: wait}
	})
	if err == nil {
		err = checkAsked(&e, cmp.Or(maxBytes, contract.DefaultReadBytes))
	}
	if errors.Is(err, bounded.ErrTooLong) {
		err = problemWithHint(KindBadAnswer,
			fmt.Sprintf("%s, from offset %d on; this does not affect the execution", tooMuch, offset),
			fmt.Sprintf("Do not run the code again: read on with get_execution from offset %d, and update the executor.", offset+1), err)
	}
	if err != nil {
		return contract.Execution{}, err
	}
	return e, nil
}

// execution makes a call that answers with one execution, and reports the answer.
func (c *Client) execution(ctx context.Context, again policy, build func() request) (contract.Execution, error) {
	a := &attempts{client: c, build: build}
	e, err := call[contract.Execution](ctx, a, again)
	if err == nil && c.recorder != nil {
		c.recorder.Answered(a.answered.ID, e)
	}
	return e, err
}

// Recorder is told of the executions that a Client submits or reads, after the executor's
// answer was verified, cleaned and bounded. It is told nothing of answers that failed.
//
// Its methods may be called concurrently. They must return at once, because a caller waits for
// the answer, and must not change what they get. instanceID is the executor that answered.
// Everything but a Submit comes from the executor: names and numbers may be invented.
type Recorder interface {
	// Submitted reports that the executor accepted s. The answer e has the events from 0 on,
	// as far as they exist. A repeated submit is reported again.
	Submitted(instanceID string, s contract.Submit, e contract.Execution)
	// Answered reports an answer about one execution, with events or without. The answer to
	// a List is not reported.
	Answered(instanceID string, e contract.Execution)
	// Fetched reports the verified bytes of a blob of at most contract.MaxBlobPart.
	Fetched(instanceID, executionID string, blob contract.Blob, content []byte)
}

type behindInputKey struct{}

// WithBehindInput makes reads of executions return as soon as the execution is queued behind
// one that waits for input, as Submit.BehindInput does for a submit. A caller that goes on
// reading then must use another context, or its reads follow each other without a pause.
func WithBehindInput(ctx context.Context) context.Context {
	return context.WithValue(ctx, behindInputKey{}, true)
}

// BehindInput returns the run that waits for input while e is queued behind it; nil for none.
func BehindInput(e contract.Execution) *contract.Behind {
	return WaitsForInput(Behind(e))
}

// Behind returns the run that has the kernel while e is queued; nil for none.
func Behind(e contract.Execution) *contract.Behind {
	if e.Status != contract.StatusQueued || e.Behind == nil || !validID(e.Behind.ExecutionID) {
		return nil
	}
	return e.Behind
}

// WaitsForInput returns b if that run waits for input and its id is one that an executor may
// have created, so that it can stand in a command; otherwise nil.
func WaitsForInput(b *contract.Behind) *contract.Behind {
	if b == nil || b.Status != contract.StatusWaitingForInput || !validID(b.ExecutionID) {
		return nil
	}
	return b
}

// maxBlobBytes bounds a blob. An executor keeps no longer ones, because the log of an
// execution and its blobs are bounded to 256 MiB.
const maxBlobBytes = 256 << 20

// Blob writes a blob's bytes to w, in parts of at most contract.MaxBlobPart, each of which is
// requested until ctx ends. It never writes more than blob.Bytes. The digest is
// checked at the end: after an error, the bytes in w are meaningless.
func (c *Client) Blob(ctx context.Context, id string, blob contract.Blob, w io.Writer) error {
	path, err := executionPath(contract.PathBlob, id)
	if err != nil {
		return err
	}
	if blob.Number < 1 || blob.Number > contract.MaxBlobs || !contract.SHA256Pattern().MatchString(blob.SHA256) {
		return &contract.Error{Code: contract.CodeNotFound, Message: fmt.Sprintf("there is no blob %d with the SHA-256 %.80q", blob.Number, blob.SHA256), Hint: "Use the number and the sha256 from the execution's events."}
	}
	if blob.Bytes < 0 || blob.Bytes > maxBlobBytes {
		return breaksBounds(fmt.Sprintf("the executor's blob has %d bytes, over the limit of %d", blob.Bytes, maxBlobBytes), nil)
	}
	path = strings.Replace(path, "{number}", strconv.Itoa(blob.Number), 1)
	whole := sha256.New()
	var only answer // the last one, which is all of a blob that has one part
	for offset := int64(0); ; {
		part, err := c.blobPart(ctx, path, contract.Range{Offset: offset, Length: blob.Bytes - offset}, io.MultiWriter(whole, w))
		if err != nil {
			return err
		}
		offset += int64(len(part.body))
		if offset == blob.Bytes {
			only = part
			break
		}
	}
	if hex.EncodeToString(whole.Sum(nil)) != blob.SHA256 {
		return problem(KindBadAnswer, "the blob's SHA-256 is not the one that its event states", nil)
	}
	if c.recorder != nil && int64(len(only.body)) == blob.Bytes {
		c.recorder.Fetched(only.instance.ID, id, blob, only.body)
	}
	return nil
}

// Blobs returns Blob for the execution id.
func (c *Client) Blobs(id string) func(ctx context.Context, blob contract.Blob, w io.Writer) error {
	return func(ctx context.Context, blob contract.Blob, w io.Writer) error { return c.Blob(ctx, id, blob, w) }
}

// blobPart requests the next part of a blob, of which left is missing, and writes it to w. It
// keeps the turns of a large part (package memory) until it is written.
func (c *Client) blobPart(ctx context.Context, path string, left contract.Range, w io.Writer) (answer, error) {
	ctx, done := memory.Hold(ctx)
	defer done()
	query := url.Values{"offset": {strconv.FormatInt(left.Offset, 10)}}
	query.Set("length", strconv.FormatInt(min(max(left.Length, 1), contract.MaxBlobPart), 10))
	a := &attempts{client: c, build: get(path, query)}
	part, err := a.finish(ctx, idempotent)
	if err != nil {
		return part, err
	}
	n := int64(len(part.body))
	if n > left.Length || n == 0 && left.Length > 0 {
		return part, breaksBounds(fmt.Sprintf("the blob does not have the %d bytes that the executor stated", left.End()), nil)
	}
	if _, err := w.Write(part.body); err != nil {
		return part, fmt.Errorf("writing a blob: %w", err)
	}
	return part, nil
}

// ErrReportTooLong: a report's blob is over its bound.
var ErrReportTooLong = fmt.Errorf("%w: the kernel's report", bounded.ErrTooLong)

// ErrNoRoom: other calls hold so much at this moment that a report has no room. A later call has.
var ErrNoRoom = errors.New("other calls hold too much at this moment; try again")

// BlobReader is what ReadReport needs of a *Client.
type BlobReader interface {
	Blob(ctx context.Context, id string, blob contract.Blob, w io.Writer) error
}

// ReadReport returns what the relay's own code in the kernel reported, whose payload in the event is
// given: that, or the blob that it refers to, of at most most bytes. All reports that are fetched
// share the budget of displays, because a slow executor decides how long they are held.
func ReadReport(ctx context.Context, vm BlobReader, id string, payload json.RawMessage, most int64) (json.RawMessage, error) {
	var ref contract.BlobRef
	if json.Unmarshal(payload, &ref) != nil || ref.Blob.SHA256 == "" {
		return payload, nil
	}
	if ref.Blob.Bytes > most {
		return nil, fmt.Errorf("%w has %d bytes", ErrReportTooLong, ref.Blob.Bytes)
	}
	if more := ref.Blob.Bytes - memory.FreeDisplays; more > 0 {
		if !memory.Displays.Take(more) {
			return nil, ErrNoRoom
		}
		defer memory.Displays.Return(more)
	}
	b := bounded.Buffer{Max: most}
	err := vm.Blob(ctx, id, ref.Blob, &b)
	return b.Bytes(), err
}

// MaxInline is the length of a report that stands in its event. An executor makes a longer one a
// blob, so that a caller holds little while it waits.
const MaxInline = 2 * contract.InlineMIMEBytes
