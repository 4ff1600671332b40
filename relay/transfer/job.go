package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

// firstDigestWait is how long the first look at a remote file waits for its SHA-256.
// A small file's is there at once, which saves a request; a big one's bytes are not
// kept waiting for longer.
const firstDigestWait = time.Second

// errStale is inside this package the news that a file is not what it was when the
// try began. It is tried anew, at most maxTries times in all.
var errStale = errors.New("the file changed")

// job is what one call of Download or Upload shares among its files.
type job struct {
	client  *client.Client
	options Options
	meter   *meter
	guard   *inspection // nil lets an upload read everything
	// buffers bounds memory and the parts in flight: a part holds one while it moves.
	// One that was never used is nil.
	buffers chan []byte
}

func newJob(c *client.Client, o Options) *job {
	j := &job{client: c, options: o, meter: &meter{report: o.Report}, guard: newInspection(o.Guard), buffers: make(chan []byte, inFlight)}
	for range inFlight {
		j.buffers <- nil
	}
	return j
}

// buffer gives a buffer of partBytes, to be given back with free.
func (j *job) buffer(ctx context.Context) ([]byte, error) {
	select {
	case b := <-j.buffers:
		if b == nil {
			b = make([]byte, partBytes)
		}
		return b, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (j *job) free(b []byte) { j.buffers <- b }

// told adds to err what was being done and, where ctx ended, its cause. The guard's
// refusal names the file already.
func (j *job) annotate(ctx context.Context, doing string, err error) error {
	if err == nil || errors.Is(err, ErrGuarded) {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%s: %w; last: %w", doing, cause, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// digestOf waits until the executor knows the SHA-256 of the file that st is of; that
// is errStale when the file changed meanwhile.
func (j *job) digestOf(ctx context.Context, remote string, st contract.FileStat) (string, error) {
	for now := st; ; {
		switch {
		case now.ETag != st.ETag || now.SizeBytes != st.SizeBytes:
			return "", errStale
		case digestPattern.MatchString(now.SHA256):
			return now.SHA256, nil
		case now.Hashing == nil:
			return "", fmt.Errorf("the executor gives no SHA-256 of %q", remote)
		}
		if err := ctx.Err(); err != nil {
			return "", context.Cause(ctx)
		}
		var err error
		now, err = j.client.Stat(ctx, remote, true, contract.MaxWait)
		if err != nil {
			return "", err
		}
	}
}
