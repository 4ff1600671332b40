package transfer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
	"colabrelay/shared/ranges"
)

// maxRounds bounds how often the executor may report missing bytes although all were sent: it was
// killed before it recorded them.
const maxRounds = 10

// sourceFile is one local file and its target on the VM.
type sourceFile struct {
	name   string // for people
	open   func() (localFile, error)
	target string
	absent bool // no query about the target is needed: nothing is there, or the file of earlier
	// earlier is the digest of the file that an earlier upload put at the target, or "".
	earlier string
	// done, if not nil, has the digests of files that did not change since.
	done *arrivals
	key  string // of the file in done
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
	record arrival // for done; without a digest until the file was read
	start  contract.UploadStart
	id     string
	found  bool   // another file at the target
	hashed int64  // bytes of the file that were hashed while others were sent
	note   string // about the file's growth
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
	u.record, _ = o.done.find(o.key, u.size, f.info.ModTime())
	got := fileResult{path: o.target, size: u.size}
	if err := f.check(); err != nil {
		return got, err
	}
	if !o.absent {
		existing, err := u.inspect(ctx)
		if err != nil {
			return got, err
		}
		if existing != "" {
			u.meter.add(u.name, StageMoving, u.size)
			got.path, got.sha, got.done, got.skipped = existing, u.record.SHA256, u.size, true
			return got, nil
		}
	}
	got.replaced = u.found || u.earlier != ""
	return u.run(ctx, got)
}

// digest returns the file's SHA-256, from the record of an earlier call or from the file,
// whose progress it reports to step.
func (u *upload) digest(ctx context.Context, step func(n int64)) (string, error) {
	if u.record.SHA256 != "" {
		return u.record.SHA256, nil
	}
	started := time.Now()
	sha, err := u.hash(ctx, step)
	if err == nil {
		u.record = newArrival(u.key, u.file.info, started, sha)
		u.done.add(u.record)
	}
	return sha, err
}

// recordRemote records that a file is on the VM at path with this ETag.
func (j *job) recordRemote(o sourceFile, record *arrival, path, etag string) {
	if record.ETag != etag {
		record.ETag = etag
		o.done.add(*record)
	}
	j.last.add(j.client.InstanceID(), path, record.SHA256, o.name)
}

// settleTime is how old a modification time must be so that a later change is certain to
// alter it: FAT stores it in steps of two seconds.
const settleTime = 2 * time.Second

// newArrival returns the record of a file whose hashing started at started.
func newArrival(key string, info fs.FileInfo, started time.Time, sha string) arrival {
	at := info.ModTime()
	return arrival{Key: key, Size: info.Size(), Modified: at, SHA256: sha, unsettled: started.Sub(at) < settleTime}
}

// hash returns the file's SHA-256 up to its length when it was opened. It is that of one state of
// the file only if checkUnchanged agrees.
func (u *upload) hash(ctx context.Context, step func(n int64)) (string, error) {
	sha, err := readDigest(ctx, u.file, u.size, step)
	if errors.Is(err, errStale) {
		err = u.file.tooShort()
	}
	return sha, err
}

// inspect returns the path of the file at the target if it equals this one. If it is another file that
// the upload may not replace, the error is ErrExists.
func (u *upload) inspect(ctx context.Context) (string, error) {
	st, err := u.client.Stat(ctx, u.target, true, firstDigestWait)
	switch {
	case refusalCode(err) == contract.CodeNotFound:
		return "", nil
	case err != nil:
		return "", err
	}
	u.found, u.earlier = true, u.last.digest(u.client.InstanceID(), st.Path)
	var own, there string
	g, inner := errgroup.WithContext(ctx) // a large file takes long on both sides
	if st.ETag != "" && st.SizeBytes == u.size {
		g.Go(func() (err error) {
			own, err = u.digest(inner, u.meter.checker(u.name, StageHashing))
			return err
		})
	}
	if st.ETag != "" && (st.SizeBytes == u.size || u.earlier != "" && !u.options.Overwrite) {
		g.Go(func() (err error) {
			if there, err = u.digestOf(inner, u.target, st); errors.Is(err, errStale) {
				err = nil
			}
			return err
		})
	}
	err = g.Wait()
	switch {
	case err != nil:
		return "", err
	case own != "" && own == there:
		u.recordRemote(u.sourceFile, &u.record, st.Path, st.ETag)
		return st.Path, nil
	case u.options.Overwrite, there != "" && there == u.earlier:
		return "", nil
	}
	is := fmt.Sprintf("%s (%d bytes, changed %s)", plain.QuoteName(st.Path), st.SizeBytes, st.Modified.UTC().Format("2006-01-02 15:04:05 UTC"))
	switch {
	case st.ETag == "":
		return "", fmt.Errorf("%w: %s is a folder or a special file", ErrExists, plain.QuoteName(st.Path))
	case u.earlier == "":
		return "", fmt.Errorf("%w: %s was not uploaded from here", ErrExists, is)
	}
	return "", fmt.Errorf("%w: %s changed there since it was uploaded", ErrExists, is)
}

// version recognises the unchanged file in a later call, which then resumes the upload, and source
// the file in any state. They are digests, because the path is of no concern to the VM. That another
// file gets the same version, or a changed one keeps it, is found by its SHA-256 at the commit.
func (u *upload) version() (version, source string) {
	full, err := filepath.Abs(u.name)
	if err != nil {
		full = u.name
	}
	host, _ := os.Hostname()
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %d", full, u.size, u.file.info.ModTime().UnixNano()))
	from := sha256.Sum256(fmt.Appendf(nil, "%q %q", host, full))
	return hex.EncodeToString(sum[:]), hex.EncodeToString(from[:])
}

// run sends the missing bytes and commits the file.
func (u *upload) run(ctx context.Context, got fileResult) (fileResult, error) {
	version, source := u.version()
	u.start = contract.UploadStart{
		Path: u.target, SizeBytes: u.size, Version: version, Source: source, Overwrite: u.options.Overwrite, Replaces: u.options.replaces(u.earlier),
	}
	up, err := u.client.StartUpload(ctx, u.start, 0)
	if err != nil {
		return got, err
	}
	u.id = up.UploadID
	for round := 0; round == 0 || up.Status != contract.UploadCommitted; round++ {
		missing := ranges.Set(up.Missing)
		switch {
		case !missing.Valid(u.size):
			err = fmt.Errorf("the executor reports missing bytes that a file of %d bytes does not have", u.size)
		case round == maxRounds:
			err = errStale
		default:
			u.addReceived(u.size - missing.Total() - u.received.Load()) // negative if the VM lost some
			if round == 0 {
				got.resumed = u.received.Load()
			}
			up, err = u.sendAndCommit(ctx, missing)
		}
		if err != nil {
			got.done = u.received.Load()
			u.dropIfUseless(ctx, asLocal(err))
			return got, asLocal(err)
		}
	}
	u.recordRemote(u.sourceFile, &u.record, up.Path, up.ETag)
	u.addReceived(u.size - u.received.Load())
	got.path, got.sha, got.done, got.note = up.Path, u.record.SHA256, u.size, u.note
	return got, nil
}

// dropTime is how long an upload waits for the executor to delete what nobody will resume.
const dropTime = 5 * time.Second

// dropIfUseless deletes the upload on the VM if no later call can resume it, because the file
// changed here or another one is in its place there.
func (u *upload) dropIfUseless(ctx context.Context, err error) {
	if !errors.Is(err, errStale) && !errors.Is(err, ErrNotRegular) && !errors.Is(err, ErrExists) {
		return
	}
	ctx, done := context.WithTimeout(ctx, dropTime)
	defer done()
	_ = u.client.DropUpload(ctx, u.id) // otherwise the executor deletes it when it is a week old
}

// sendAndCommit sends the missing bytes, computes the digest meanwhile, and requests the commit, even
// of a committed upload, whose digest may be that of an earlier content. The returned upload is
// committed, or receiving if bytes are still missing.
func (u *upload) sendAndCommit(ctx context.Context, missing ranges.Set) (up contract.Upload, err error) {
	g, inner := errgroup.WithContext(ctx)
	g.Go(func() error { return u.moveParts(inner, missing, u.sendPart) })
	commit := u.start
	g.Go(func() (err error) {
		commit.SHA256, err = u.digest(inner, u.countHashed)
		return err
	})
	if err := g.Wait(); err != nil {
		return up, err
	}
	if err := u.checkUnchanged(ctx, commit.SHA256); err != nil {
		return up, err
	}
	for {
		u.meter.add(u.name, StageChecking, 0)
		up, err = u.client.StartUpload(ctx, commit, contract.MaxWait)
		if err != nil || up.Status != contract.UploadHashing {
			return up, err
		}
		if ctx.Err() != nil {
			return up, context.Cause(ctx)
		}
	}
}

// checkUnchanged returns errStale if the file, of which sum is the digest, changed while it was
// sent. Of a file that was altered, such as one that grew, it reads the bytes that were sent again:
// those that are the same then and now did not change in between.
func (u *upload) checkUnchanged(ctx context.Context, sum string) error {
	altered, err := u.file.altered()
	if err != nil || !altered {
		return err
	}
	again, err := u.hash(ctx, u.meter.checker(u.name, StageHashing))
	if err == nil && again != sum {
		err = errStale
	}
	if now, statErr := u.file.Stat(); statErr == nil && now.Size() > u.size {
		u.note = grownNote(strconv.Quote(u.name), "upload", u.size)
	}
	return err
}

// countHashed reports the progress of the digest once it is all that is missing.
func (u *upload) countHashed(n int64) {
	u.hashed += n
	if u.received.Load() == u.size {
		u.meter.hashed(u.name, StageHashing, u.hashed)
	}
}

// sendPart is the partFunc of an upload. After an interruption it first queries which bytes
// of the piece arrived, because the executor keeps the beginning of an interrupted part. Of a piece
// that a proxy in front of the executor does not accept, the next attempt sends less.
func (u *upload) sendPart(ctx context.Context, piece contract.Range, again bool) (ranges.Set, error) {
	rest := ranges.Set(nil)
	if again {
		left, err := u.notReceived(ctx, piece)
		if err != nil {
			return ranges.Set{piece}, err
		}
		u.addSent(piece.Length - left.Total())
		if len(left) == 0 {
			return nil, nil
		}
		piece, rest = left.Front(contract.MaxFilePart)
	}
	first, later := ranges.Set{piece}.Front(u.client.MostBody())
	for _, r := range later {
		rest = rest.Add(r)
	}
	from := &partSource{file: u.file, leave: u.meter.leave}
	err := u.client.PutPart(ctx, u.id, from, first)
	switch err := cmp.Or(from.failure(), err); {
	case client.Shrinks(err):
		return rest.Add(first), nil
	case err != nil:
		return rest.Add(first), err
	}
	u.addSent(first.Length)
	return rest, nil
}

// partSource reads a part of a file. err is why it could not be read, which an error of the
// request does not tell.
type partSource struct {
	file  localFile
	mu    sync.Mutex  // a transport may still read after the request has ended
	leave func(n int) // is told of the bytes that leave; nil after the request has ended
	err   error
}

func (s *partSource) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave = nil
	return s.err
}

// ReadAt implements io.ReaderAt.
func (s *partSource) ReadAt(b []byte, at int64) (int, error) {
	n, err := s.file.ReadAt(b, at)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n == len(b) && s.leave != nil {
		s.leave(n)
	}
	if n == len(b) {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		err = s.file.tooShort()
	}
	s.err = err
	return n, err
}

// notReceived returns the bytes of piece that the executor does not have.
func (u *upload) notReceived(ctx context.Context, piece contract.Range) (ranges.Set, error) {
	up, err := u.client.StartUpload(ctx, u.start, 0)
	if err == nil && up.UploadID != u.id {
		err = errStale
	}
	if err != nil {
		return nil, err
	}
	return ranges.Set(up.Missing).Within(piece), nil
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

// asLocal translates refusals of an upload: errStale if the executor can no longer complete
// it, because the file changed or the upload was removed to free space; ErrExists if another
// file appeared at the target. It returns any other err as it is.
func asLocal(err error) error {
	switch refusalCode(err) {
	case contract.CodeChanged, contract.CodeNotFound:
		return errStale
	case contract.CodeConflict:
		return fmt.Errorf("%w: %w", ErrExists, err)
	}
	return err
}

// makeExecutable makes files that are on the VM executable, because they are so here. It returns notes
// about those that cannot be.
func (j *job) makeExecutable(ctx context.Context, folder string, names []string) (notes []string, err error) {
	for group := range groups(names, contract.MaxBatchFiles, batchBytes, lineLen) {
		m := contract.Manifest{Path: folder}
		for _, name := range group {
			m.Files = append(m.Files, contract.ManifestFile{Name: name, Executable: true})
		}
		answers, err := j.putBatch(ctx, nil, m)
		if err != nil {
			return notes, err
		}
		for i, a := range answers {
			if a.Error != nil && a.Error.Code != contract.CodeNotFound { // one that failed to arrive
				notes = append(notes, fmt.Sprintf("%s is executable here, but not on the VM: %v", plain.QuoteName(group[i]), a.Error))
			}
		}
	}
	return notes, nil
}

// isExecutable reports whether a local file's owner may execute it. On Windows nothing tells.
func isExecutable(info fs.FileInfo) bool { return !onWindows && info.Mode()&0o100 != 0 }

// replaces returns what the executor is told about the only file that may be replaced.
// earlier is that file's digest, or "".
func (o Options) replaces(earlier string) string {
	if o.Overwrite {
		return ""
	}
	return cmp.Or(earlier, contract.ReplaceNothing)
}
