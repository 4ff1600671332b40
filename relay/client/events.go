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
			fmt.Sprintf("the executor's answer from offset %d on %s; this does not affect the execution", offset, excess(err, c.maxAnswer)),
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
