package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// firstDigestWait is how long an upload's first query about the file at its target waits
// for that file's SHA-256.
const firstDigestWait = time.Second

// errStale means that a file changed after the attempt to transfer it started. The
// transfer restarts, at most maxTries times in all. It does not leave this package.
var errStale = errors.New("the file changed")

// job is what the files of one call of Download or Upload share.
type job struct {
	client  *client.Client
	options Options
	meter   *meter
	guard   *Guard       // nil permits all files
	last    *lastUploads // nil records nothing
	records records      // of downloads
	// noObeyed and dotfiles are those of the download's Local.
	noObeyed, dotfiles bool
	// slots bounds the parts in flight, of all files of the job together.
	slots   chan struct{}
	silence client.Silence // of all parts together
}

func newJob(c *client.Client, o Options) *job {
	return &job{client: c, options: o, meter: &meter{report: o.Report}, guard: o.Guard, last: openLastUploads(o.RecordDir), slots: make(chan struct{}, inFlight)}
}

// slot waits until one more part may be in flight. done must be called at its end.
func (j *job) slot(ctx context.Context) (done func(), err error) {
	select {
	case j.slots <- struct{}{}:
		return func() { <-j.slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// annotate adds to err what was being done and, if ctx ended, its cause. A refusal by the
// guard already names the file.
func (j *job) annotate(ctx context.Context, doing string, err error) error {
	if err == nil || errors.Is(err, ErrGuarded) {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%s: %w; last error: %w", doing, cause, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// untilStable repeats attempt, at most maxTries times, until the file called name does not
// change during it.
func (j *job) untilStable(ctx context.Context, doing, name string, attempt func() (fileResult, error)) (fileResult, error) {
	for try := 1; ; try++ {
		got, err := attempt()
		switch {
		case !errors.Is(err, errStale):
			return got, j.annotate(ctx, doing, err)
		case try == maxTries:
			return got, fmt.Errorf("%s: %w: it changed during each of %d attempts", doing, ErrChanged, maxTries)
		}
		j.meter.add(name, StageMoving, -got.done)
	}
}

// digestOf waits until the executor has computed the SHA-256 of the file that st
// describes. It returns errStale if the file changed.
func (j *job) digestOf(ctx context.Context, remote string, st contract.FileStat) (string, error) {
	return awaitDigest(ctx, remote, st, func() (contract.FileStat, error) {
		now, err := j.client.Stat(ctx, remote, true, contract.MaxWait)
		if err == nil && (now.ETag != st.ETag || now.SizeBytes != st.SizeBytes) {
			err = errStale
		}
		return now, err
	})
}

// digestOfBeginning returns the SHA-256 of the first size bytes of a file that may grow meanwhile,
// and how long the file was before they were hashed. It returns errStale if the file changed otherwise.
func (j *job) digestOfBeginning(ctx context.Context, remote string, size int64) (sum string, length int64, err error) {
	st, err := j.client.Stat(ctx, remote, false, 0)
	if err != nil {
		return "", 0, err
	}
	ask := func() (contract.FileStat, error) {
		return j.client.Prefix(ctx, remote, st.ETag, size, contract.MaxWait)
	}
	now, err := ask()
	if err == nil {
		sum, err = awaitDigest(ctx, remote, now, ask)
	}
	if refusalCode(err) == contract.CodeChanged {
		err = errStale
	}
	return sum, st.SizeBytes, err
}

// awaitDigest asks again until the executor has computed a SHA-256.
func awaitDigest(ctx context.Context, remote string, now contract.FileStat, ask func() (contract.FileStat, error)) (string, error) {
	for {
		switch {
		case contract.SHA256Pattern().MatchString(now.SHA256):
			return now.SHA256, nil
		case now.Hashing == nil:
			return "", errors.New("the executor sent no SHA-256 of " + plain.QuoteName(remote))
		}
		if err := ctx.Err(); err != nil {
			return "", context.Cause(ctx)
		}
		var err error
		if now, err = ask(); err != nil {
			return "", err
		}
	}
}
