// Package transfer moves files and folders between laptop and VM. It moves parts in
// parallel, compares the SHA-256 of whole files, and resumes after an interruption. Unless
// asked to, it replaces no file except one on the VM that an earlier upload put there and
// that did not change there since.
//
// It must not touch anything outside the local folder it is given, load a whole file into
// memory, or give an incomplete file its final name. It runs no code and sends requests
// only through relay/client. Start reading at Download and Upload, then downloadfile.go
// and uploadfile.go (one file) and partfile.go (parts in flight).
package transfer

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
	"colabrelay/shared/partfile"
)

// Bounds of a transfer.
const (
	partBytes   = 4 << 20 // of a file, per request; twice as many while much is left, because tunnels limit the number of requests
	inFlight    = 8       // parts at the same time; executors expect ten connections of a relay at most
	filesAtOnce = 4       // of one folder
	maxEntries  = 100_000 // files and folders below one folder
	maxDepth    = 64      // levels of folders; ends a link to a folder above
	maxTries    = 3       // with a file that changes
	maxNotes    = 50      // in Result.Notes, on files that were skipped or failed
	maxRenamed  = 10      // in Result.Notes, on names that differ: a VM can make them all differ
)

// Errors that callers distinguish. A refusal by the executor is a *contract.Error, a
// failure of the connection a *client.Error. A transfer goes on while bytes arrive, and ends with
// such an error once none has arrived for client.Patience.
var (
	ErrChanged       = errors.New("the file keeps changing")
	ErrLocalDisk     = errors.New("the local disk is full")
	ErrBusy          = errors.New("another transfer is writing this file")
	ErrForbiddenName = errors.New("not a usable name for a local file")
	ErrNotRegular    = errors.New("neither a regular file nor a folder")
	ErrTooMany       = errors.New("too many files")
	ErrLocalPath     = errors.New("not a usable local path")
	ErrSomeFailed    = errors.New("some files failed")
	ErrUnexpected    = errors.New("not the file that was expected")
	ErrExists        = errors.New("already on the VM with other content")
	ErrSilent        = errors.New("no byte arrived for a minute")
)

// Local is the destination of a download. Name is a path below Dir and cannot leave it.
// If Name is empty, ends in a slash or is an existing folder, the file goes into that
// folder under the last part of the remote path, as localName returns it. A folder that
// the same download created earlier is the exception: it is continued. Names in an
// executor's answers are never used for this.
type Local struct {
	Dir     string // trusted; created when missing
	Name    string
	Runtime string // the source's name, which a download of /content gets as its own
	// Dotfiles downloads the files and folders in a folder that are Obeyed too. Without it they
	// are left out, because the VM chooses their names.
	Dotfiles bool
	// NoObeyed keeps the download from writing any file or folder that is Obeyed, also if the
	// caller names it.
	NoObeyed bool
}

// Options of a transfer.
type Options struct {
	// Overwrite replaces a different file of the same name. Without it, a downloaded file
	// is numbered, "name (1).ext", and an upload is ErrExists, unless an earlier upload put
	// that file there and it did not change since.
	Overwrite bool
	// RecordDir is one of the relay's own folders, for its records about transfers: which
	// files uploads put on VMs, which folders downloads created, and which files of unfinished
	// folders have arrived. When it is empty, nothing is recorded about uploads, and records about
	// downloads are next to them.
	RecordDir string
	// Guard decides which files an upload may read; nil permits all of them.
	Guard *Guard
	// Expect, if not nil, is the file that a download must be. A file of another size or
	// digest, or a folder, is ErrUnexpected and is not stored. Unless the executor has yet
	// to compute the digest, none of its bytes are fetched either.
	Expect *Expected
	// Report receives the progress, often and never concurrently. It must not block.
	Report func(Progress)
}

// Expected describes a file before it is downloaded.
type Expected struct {
	SizeBytes int64
	SHA256    string
}

// check compares e with the executor's description of the file. A digest that the
// executor has not computed yet is not compared.
func (e *Expected) check(st contract.FileStat) error {
	switch {
	case e == nil:
		return nil
	case st.IsDir || st.Special:
		return fmt.Errorf("%w: it is not a regular file", ErrUnexpected)
	case st.SizeBytes != e.SizeBytes:
		return fmt.Errorf("%w: it has %d bytes, not %d", ErrUnexpected, st.SizeBytes, e.SizeBytes)
	case st.SHA256 != "" && st.SHA256 != e.SHA256:
		return fmt.Errorf("%w: its SHA-256 is different", ErrUnexpected)
	}
	return nil
}

// Stage is what a transfer does with the bytes of a file.
type Stage string

const (
	StageHashing  Stage = "hashing" // the local file's SHA-256, if an upload waits for it
	StageMoving   Stage = "moving"
	StageChecking Stage = "checking" // the whole file's SHA-256, after the transfer
)

// Progress is the state of a transfer. Done and Total are bytes of all its files.
type Progress struct {
	Name  string // the file that changed last
	Stage Stage
	Done  int64
	Total int64
	File  int // finished files
	Files int
	// Hashed is how many bytes of Name were read while Stage is hashing, or checking on
	// the laptop.
	Hashed int64
	// Left is how many bytes left this computer, confirmed or not. A report in which it is
	// all that changed is no sign of the VM.
	Left int64
}

// Result is the outcome of a transfer, including one that ended early.
type Result struct {
	Path        string // of the file or folder at its destination
	IsDir       bool
	SizeBytes   int64  // of all files
	DoneBytes   int64  // of SizeBytes, how many are at the destination
	SHA256      string // of a single file
	ResumedFrom int64  // bytes that an earlier call moved
	MovedBytes  int64  // payload bytes that this call received, or that the VM confirmed
	Files       int
	Skipped     int // of Files, those that were already at the destination
	Failed      int // of Files
	// Replaced is how many Python modules an upload replaced on the VM, or may have: an earlier
	// upload put them there.
	Replaced int
	// Notes list the files that were skipped or failed, and why, at most maxNotes. Then
	// follow the files and folders whose names differ on both sides, at most maxRenamed,
	// and the number of the others.
	Notes []string
	// LeftOut is not counted among Files.
	LeftOut LeftOut
}

// Download copies a remote file or folder to the laptop. When ctx ends, the error wraps
// its cause and the received bytes are kept: the same call resumes the download.
func Download(ctx context.Context, c *client.Client, remote string, to Local, o Options) (Result, error) {
	ctx = client.WithPatience(ctx, client.Patience)
	j := newJob(c, o)
	j.noObeyed, j.dotfiles = to.NoObeyed, to.Dotfiles
	root, err := openLocal(to.Dir)
	if err != nil {
		return Result{}, err
	}
	defer root.Close()
	if j.records, err = openRecords(o.RecordDir, root); err != nil {
		return Result{}, err
	}
	defer j.records.close()
	st, err := c.Stat(ctx, remote, true, 0)
	if err != nil {
		if refusalCode(err) == contract.CodeNotFound {
			err = filename.Explain(saidError{"the VM has no such file or folder (" + string(contract.CodeNotFound) + ")", err}, remote)
		}
		return Result{}, j.annotate(ctx, "downloading "+plain.QuoteName(remote), err)
	}
	if err := o.Expect.check(st); err != nil {
		return Result{}, fmt.Errorf("downloading %s: %w", plain.QuoteName(remote), err)
	}
	from := newOrigin(to.Runtime, remote)
	name, err := to.nameFor(root, j.records, from, st.IsDir)
	if err != nil {
		return Result{}, err
	}
	if err := to.checkObeyed(root, name, st.IsDir); err != nil {
		return Result{}, err
	}
	if st.IsDir {
		return j.downloadFolder(ctx, root, remoteFolder{remote, from}, name)
	}
	j.meter.plan(1, st.SizeBytes)
	got, err := j.downloadFile(ctx, root, requestedFile{remote: remote, name: name, lastStat: &st})
	return j.resultOf(ctx, got, err)
}

// Upload copies a local file or folder to the VM. If remote is empty, the copy goes into
// /content under its own name; if remote ends in a slash, or a file is uploaded to an
// existing folder, the copy goes into that folder. A folder's remote without a slash is
// the folder itself, so that a second call has the same destination. When ctx ends, the
// error wraps its cause and the bytes on the VM are kept: the same call resumes the
// upload.
func Upload(ctx context.Context, c *client.Client, local, remote string, o Options) (Result, error) {
	ctx = client.WithPatience(ctx, client.Patience)
	j := newJob(c, o)
	info, err := statLocal(local)
	if err != nil {
		return Result{}, err
	}
	if info.IsDir() {
		return j.uploadFolder(ctx, local, folderTarget(local, remote))
	}
	target, absent, err := j.fileTarget(ctx, local, remote)
	if err != nil {
		return Result{}, j.annotate(ctx, fmt.Sprintf("uploading %q", local), err)
	}
	j.meter.plan(1, info.Size())
	sent, err := j.uploadFile(ctx, sourceFile{name: local, target: target, absent: absent, open: func() (localFile, error) { return j.byPath().open(local) }})
	r, err := j.resultOf(ctx, sent, err)
	if err == nil && isExecutable(info) {
		var notes []string
		folder, name := path.Split(r.Path)
		notes, err = j.makeExecutable(ctx, folder, []string{name})
		r.Notes, err = append(r.Notes, notes...), j.annotate(ctx, fmt.Sprintf("uploading %q", local), err)
	}
	r.Notes = j.recordUploads(r.Notes)
	return r, err
}

// recordUploads saves what was uploaded. If that fails, a later upload of a changed file is
// refused, which a note explains.
func (j *job) recordUploads(notes []string) []string {
	if err := j.last.save(); err != nil {
		return addNote(notes, fmt.Sprintf("%v; a later upload of a changed version needs overwrite", err))
	}
	return notes
}

// resultOf returns the Result of a transfer of one file.
func (j *job) resultOf(ctx context.Context, one fileResult, err error) (Result, error) {
	r := Result{
		Path: one.path, SizeBytes: one.size, DoneBytes: one.done, SHA256: one.sha,
		ResumedFrom: one.resumed, MovedBytes: j.meter.moved.Load(), Files: 1,
	}
	if err == nil && one.note != "" {
		r.Notes = []string{one.note}
	}
	switch {
	case err != nil:
		r.Failed = 1
	case one.skipped:
		r.Skipped = 1
	case one.replacesModule():
		r.Replaced = 1
	}
	return r, err
}

// fileResult is the outcome of the transfer of one file.
type fileResult struct {
	path    string            // for people
	local   string            // of a download: its path in the root
	remote  contract.FileStat // of a download: the file that was copied
	size    int64
	done    int64
	resumed int64
	sha     string
	skipped bool
	// replaced: another file was at the destination of an upload.
	replaced bool
	note     string // for the caller; may be empty
}

func (f fileResult) replacesModule() bool { return f.replaced && path.Ext(f.path) == ".py" }

// refusalCode returns the code of the executor's refusal, or "" for any other error.
func refusalCode(err error) contract.Code {
	if refused, ok := errors.AsType[*contract.Error](err); ok {
		return refused.Code
	}
	return ""
}

// firstDigestWait is how long an upload's first query about the file at its target waits
// for that file's SHA-256.
const firstDigestWait = time.Second

// errStale means that a file changed after the attempt to transfer it started. The
// transfer restarts, at most maxTries times in all. It does not leave this package.
var errStale = partfile.ErrChanged

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
		case now.SHA256 != "":
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
