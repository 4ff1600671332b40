package transfer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// maxRounds bounds how often the executor may report missing bytes although all were sent:
// unverified parts that were wrong, or more ranges than fit one answer.
const maxRounds = 10

// sourceFile is one local file and its target on the VM.
type sourceFile struct {
	name   string // for people
	open   func() (localFile, error)
	target string
	absent bool // the target surely does not exist: no query is needed
	// sent, if not nil, has the digests of files that did not change since.
	sent *sentFiles
	key  string // of the file in sent
}

// uploadFile uploads one file, and restarts when the file changes.
func (j *job) uploadFile(ctx context.Context, o sourceFile) (fileResult, error) {
	defer j.meter.finish(o.name)
	return j.untilStable(ctx, fmt.Sprintf("uploading %q", o.name), o.name, func() (fileResult, error) {
		defer func() { o.absent = false }()
		return j.uploadOnce(ctx, o)
	})
}

// upload is one attempt to upload one file.
type upload struct {
	*job
	sourceFile
	file   localFile
	size   int64
	sha    string
	record sentFile // for sent
	id     string
	// received is how many bytes of the file the executor confirmed.
	received atomic.Int64
}

func (j *job) uploadOnce(ctx context.Context, o sourceFile) (_ fileResult, err error) {
	f, err := o.open()
	if err != nil {
		return fileResult{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	u := &upload{job: j, sourceFile: o, file: f, size: f.info.Size()}
	got := fileResult{path: o.target, size: u.size}
	if u.sha, err = u.digest(ctx); err != nil {
		return got, err
	}
	got.sha = u.sha
	if !o.absent {
		existing, err := u.findSame(ctx)
		if err != nil {
			return got, err
		}
		if existing != "" {
			u.meter.add(u.name, StageMoving, u.size)
			got.path, got.done, got.skipped = existing, u.size, true
			return got, nil
		}
	}
	return u.run(ctx, got)
}

// digest returns the file's SHA-256, from the record of an earlier call or from the file.
func (u *upload) digest(ctx context.Context) (string, error) {
	if record, ok := u.sent.find(u.key, u.file.info); ok {
		u.record = record
		return record.SHA256, nil
	}
	started := time.Now()
	sha, err := u.hash(ctx)
	if err == nil {
		u.record = newSentFile(u.key, u.file.info, started, sha)
		u.sent.add(u.record)
	}
	return sha, err
}

// recordRemote records that the file is on the VM with this ETag.
func (u *upload) recordRemote(etag string) {
	u.record.ETag = etag
	u.sent.add(u.record)
}

// hash returns the file's SHA-256, or errStale if the file changed while it was read. A file
// that is longer than its size is refused, because its truncated copy would look complete.
func (u *upload) hash(ctx context.Context) (string, error) {
	sha, err := readDigest(ctx, u.file, u.size, u.meter.checker(u.name, StageHashing))
	switch {
	case err != nil && !errors.Is(err, errStale):
		return "", err
	case u.file.changed():
		return "", errStale
	case err != nil || u.file.holdsMore():
		return "", errSizeMismatch
	}
	return sha, nil
}

// maxSame bounds how many numbered names are compared to find the same file.
const maxSame = 20

// findSame looks for a remote file that equals this one: the target or, unless Overwrite is
// set, one of its numbered names.
func (u *upload) findSame(ctx context.Context) (string, error) {
	for i := range maxSame {
		at := filename.Numbered(u.target, i)
		st, err := u.client.Stat(ctx, at, true, firstDigestWait)
		switch {
		case refusalCode(err) == contract.CodeNotFound:
			return "", nil
		case err != nil:
			return "", err
		}
		if st.ETag != "" && st.SizeBytes == u.size {
			sha, err := u.digestOf(ctx, at, st)
			if err != nil && !errors.Is(err, errStale) {
				return "", err
			}
			if sha == u.sha {
				u.recordRemote(st.ETag)
				return st.Path, nil
			}
		}
		if u.options.Overwrite {
			return "", nil
		}
	}
	return "", nil
}

// run sends the missing bytes and commits the file.
func (u *upload) run(ctx context.Context, got fileResult) (fileResult, error) {
	up, err := u.client.StartUpload(ctx, contract.UploadStart{
		Path: u.target, SizeBytes: u.size, SHA256: u.sha, Overwrite: u.options.Overwrite,
	})
	if err != nil {
		return got, err
	}
	u.id = up.UploadID
	got.resumed = up.ReceivedBytes
	for round := 0; up.Status != contract.UploadCommitted; round++ {
		u.addReceived(up.ReceivedBytes - u.received.Load()) // negative if bytes turned out to be wrong
		if round == maxRounds {
			err = errStale
		} else {
			up, err = u.sendAndCommit(ctx, up)
		}
		if err != nil {
			got.done = u.received.Load()
			return got, asStale(err)
		}
	}
	u.recordRemote(up.ETag)
	u.addReceived(u.size - u.received.Load())
	got.path, got.done = up.Path, u.size
	return got, nil
}

// sendAndCommit sends the bytes that up misses and requests the commit. The returned upload
// is committed, or receiving if bytes are still missing.
func (u *upload) sendAndCommit(ctx context.Context, up contract.Upload) (contract.Upload, error) {
	if up.Status == contract.UploadReceiving {
		missing := ranges(up.Missing)
		if !missing.valid(u.size) {
			return up, fmt.Errorf("the executor reports missing bytes that a file of %d bytes does not have", u.size)
		}
		if err := u.moveParts(ctx, missing, u.sendPart); err != nil {
			return up, err
		}
	}
	if u.file.changed() {
		return up, errStale
	}
	for {
		u.meter.add(u.name, StageChecking, 0)
		up, err := u.client.CommitUpload(ctx, u.id, contract.MaxWait)
		if err != nil || up.Status != contract.UploadHashing {
			return up, err
		}
		if ctx.Err() != nil {
			return up, context.Cause(ctx)
		}
	}
}

// sendPart is the partFunc of an upload. After an interruption it first queries which bytes
// of the piece arrived, because the executor keeps the beginning of an interrupted part.
func (u *upload) sendPart(ctx context.Context, piece contract.Range, again bool) (ranges, error) {
	rest := ranges(nil)
	if again {
		left, err := u.notReceived(ctx, piece)
		if err != nil {
			return ranges{piece}, err
		}
		u.addSent(piece.Length - left.total())
		if len(left) == 0 {
			return nil, nil
		}
		piece, rest = left.front(partBytes)
	}
	if _, err := u.client.PutPart(ctx, u.id, u.file, piece); err != nil {
		return rest.add(piece), err
	}
	u.addSent(piece.Length)
	return rest, nil
}

// notReceived returns the bytes of piece that the executor does not have. Bytes beyond the
// last range of a full answer count as missing.
func (u *upload) notReceived(ctx context.Context, piece contract.Range) (ranges, error) {
	up, err := u.client.Upload(ctx, u.id, 0)
	if err != nil {
		return nil, err
	}
	missing := ranges(up.Missing)
	if len(missing) >= contract.MaxUploadRanges {
		last := missing.last()
		missing = missing.add(contract.Range{Offset: last, Length: max(0, u.size-last)})
	}
	return missing.within(piece), nil
}

// addSent counts bytes that this call sent and the executor received.
func (u *upload) addSent(n int64) {
	u.meter.moved.Add(n)
	u.addReceived(n)
}

// addReceived counts n more bytes of the file on the VM.
func (u *upload) addReceived(n int64) {
	u.received.Add(n)
	u.meter.add(u.name, StageMoving, n)
}

// asStale returns errStale if the executor can no longer complete this upload: the file
// changed, or the upload was removed to free space. It returns any other err as it is.
func asStale(err error) error {
	switch refusalCode(err) {
	case contract.CodeChanged, contract.CodeNotFound:
		return errStale
	}
	return err
}
