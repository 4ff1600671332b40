package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// maxRounds bounds how often an upload is told that something is missing although all
// was sent: parts that could not be proven, or more ranges than one answer names.
const maxRounds = 10

// outside is one local file and where it goes on the VM.
type sourceFile struct {
	name   string // for people
	open   func() (localFile, error)
	target string
	absent bool // the VM surely has no such file there: no need to look
	// memo, where not nil, knows the digests of files that have not changed since.
	sent *sentFiles
	key  string // what memo knows the file by
}

// uploadFile sends one file. A file that changes meanwhile is begun anew.
func (j *job) uploadFile(ctx context.Context, o sourceFile) (fileResult, error) {
	doing := fmt.Sprintf("uploading %q", o.name)
	defer j.meter.finish(o.name)
	for try := 1; ; try++ {
		got, err := j.uploadOnce(ctx, o)
		o.absent = false
		switch {
		case err == nil:
			return got, nil
		case !errors.Is(err, errStale):
			return got, j.annotate(ctx, doing, err)
		case try == maxTries:
			return got, fmt.Errorf("%s: %w: it was another one in each of %d tries", doing, ErrChanged, maxTries)
		}
		j.meter.add(o.name, StageMoving, -got.done)
	}
}

// upload is one try at one file.
type upload struct {
	*job
	sourceFile
	file   localFile
	size   int64
	sha    string
	record sentFile // for the memo
	id     string
	// arrived is how many bytes of the file the executor is known to have.
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
		there, err := u.findSame(ctx)
		if err != nil {
			return got, err
		}
		if there != "" {
			u.meter.add(u.name, StageMoving, u.size)
			got.path, got.done, got.skipped = there, u.size, true
			return got, nil
		}
	}
	return u.run(ctx, got)
}

// digest is the file's SHA-256: as an earlier call noted it, or read now.
func (u *upload) digest(ctx context.Context) (string, error) {
	if line, ok := u.sent.find(u.key, u.file.info); ok {
		u.record = line
		return line.SHA256, nil
	}
	began := time.Now()
	sha, err := u.hash(ctx)
	if err == nil {
		u.record = newSentFile(u.key, u.file.info, began, sha)
		u.sent.add(u.record)
	}
	return sha, err
}

// there notes that the file is on the VM, with this etag.
func (u *upload) recordRemote(etag string) {
	u.record.ETag = etag
	u.sent.add(u.record)
}

// hash is the file's SHA-256, or errStale when it changed meanwhile. A file that tells
// another size than it has is refused: its copy would be cut off and look whole.
func (u *upload) hash(ctx context.Context) (string, error) {
	buf, err := u.buffer(ctx)
	if err != nil {
		return "", err
	}
	defer u.free(buf)
	sha, err := readDigest(ctx, u.file, u.size, buf, u.meter.checker(u.name, StageHashing))
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

// maxSame is how many numbered names on the VM are looked at for the same file.
const maxSame = 20

// findSame looks for a remote file that is this one already: the target or, unless
// it may be overwritten, one of its numbered names.
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

// run sends what is missing and has the whole put in its place.
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
		u.addReceived(up.ReceivedBytes - u.received.Load()) // less, where something turned out wrong
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

// sendAndCommit sends what up misses and asks for the file to be put in its place. The
// answer is committed, or receiving where something is still missing.
func (u *upload) sendAndCommit(ctx context.Context, up contract.Upload) (contract.Upload, error) {
	if up.Status == contract.UploadReceiving {
		missing := ranges(up.Missing)
		if !missing.valid(u.size) {
			return up, fmt.Errorf("the executor misses bytes that no file of %d bytes has", u.size)
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

// put is the carrier of an upload. After a cut it first asks what of the piece has
// arrived: the executor keeps the beginning of a part that was cut.
func (u *upload) sendPart(ctx context.Context, piece contract.Range, again bool, buf []byte) (ranges, error) {
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
	body := buf[:piece.Length]
	if n, err := u.file.ReadAt(body, piece.Offset); n < len(body) {
		if errors.Is(err, io.EOF) {
			err = errStale
		}
		return rest.add(piece), err
	}
	if _, err := u.client.PutPart(ctx, u.id, piece.Offset, body); err != nil {
		return rest.add(piece), err
	}
	u.addSent(piece.Length)
	return rest, nil
}

// notArrived is what of piece the executor has not. Past the last range that an
// answer has room for, nothing is known to have arrived.
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

// carried counts bytes that arrived.
func (u *upload) addSent(n int64) {
	u.meter.addMoved(n)
	u.addReceived(n)
}

// count changes how much of the file is known to be there.
func (u *upload) addReceived(n int64) {
	u.received.Add(n)
	u.meter.add(u.name, StageMoving, n)
}

// stale is errStale where the executor says that the upload can't become this file:
// the file changed, or the upload was dropped to make room.
func asStale(err error) error {
	switch refusalCode(err) {
	case contract.CodeChanged, contract.CodeNotFound:
		return errStale
	}
	return err
}
