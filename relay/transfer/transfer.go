// Package transfer moves files and folders between laptop and VM: in parts and in
// parallel, checked by SHA-256 as a whole, resumed after any cut, never over an
// existing file unless asked.
//
// It must not touch anything outside the local folder it was given, hold a file in
// memory, or name a file that is not whole. It runs nothing and asks only
// relay/client. Start reading at Download and Upload, then downloadfile.go and
// uploadfile.go (the way of one file) and move.go (parts in flight).
package transfer

import (
	"context"
	"errors"
	"fmt"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

// Bounds of a transfer.
const (
	partBytes   = 4 << 20 // of one request; big, as tunnels count requests
	inFlight    = 6       // parts at once, so memory stays under inFlight*partBytes
	filesAtOnce = 4       // of a folder
	maxEntries  = 100_000 // files and folders of a folder
	maxDepth    = 64      // folders in folders; a link to a folder above ends here
	maxTries    = 3       // with a file that changes
	maxRepairs  = 3       // rounds of fetching again what could not be proven
	maxNotes    = 50      // in Result.Notes, of what was left out or failed
	maxRenamed  = 10      // in Result.Notes, of names that differ: a VM can make them all differ
)

// Errors that callers tell apart. What the executor refuses is a *contract.Error,
// what is wrong on the way a *client.Error.
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
)

// Local is where a download goes. Name may lead into subfolders of Dir, never out
// of it. A Name that is empty or ends in a slash gets the last part of the remote path
// that the caller gave, as LocalName makes it, and so does one that is a folder, unless
// this is the download that made the folder. Nothing in an executor's answer names it.
type Local struct {
	Dir     string // trusted; made when missing
	Name    string
	Runtime string // where from; the name of a download of /content, which has no better one
}

// Options of a transfer.
type Options struct {
	// Overwrite replaces a different file of the same name. Without it the new file
	// gets a number: "name (1).ext".
	Overwrite bool
	// ResumeDir is a folder of the relay's own where an unfinished upload of a folder notes
	// what is on the VM already, for the same call again. Empty for none.
	ResumeDir string
	// Guard says what an upload may read; nil lets it read everything.
	Guard *Guard
	// Expect is what a download must be, where the caller knows: a file of another size
	// or digest, or a folder, is ErrUnexpected before a byte of it comes.
	Expect *Expected
	// Report is told how far it is, often and never twice at once. It must not block.
	Report func(Progress)
}

// Expected is a file that is known before it comes.
type Expected struct {
	SizeBytes int64
	SHA256    string
}

// check compares what the executor says of the file; a digest that it does not know yet
// is compared once it does.
func (e *Expected) check(st contract.FileStat) error {
	switch {
	case e == nil:
		return nil
	case st.IsDir || st.Special:
		return fmt.Errorf("%w: it is no regular file", ErrUnexpected)
	case st.SizeBytes != e.SizeBytes:
		return fmt.Errorf("%w: it has %d bytes, not %d", ErrUnexpected, st.SizeBytes, e.SizeBytes)
	case st.SHA256 != "" && st.SHA256 != e.SHA256:
		return fmt.Errorf("%w: its SHA-256 is another one", ErrUnexpected)
	}
	return nil
}

// Stage is what is being done with the bytes.
type Stage string

// Stages of a transfer.
const (
	StageHashing  Stage = "hashing" // the local file's SHA-256, before an upload
	StageMoving   Stage = "moving"
	StageChecking Stage = "checking" // the whole file's SHA-256, after it moved
)

// Progress is how far a transfer is. Done and Total are bytes of all its files.
type Progress struct {
	Name  string // the file that last moved on
	Stage Stage
	Done  int64
	Total int64
	File  int // files that are finished
	Files int
	// Hashed is how many bytes of Name were read, while Stage is hashing or checking
	// on the laptop.
	Hashed int64
}

// Result is what a transfer did, also one that ended early.
type Result struct {
	Path        string // where the file or folder is now
	IsDir       bool
	SizeBytes   int64  // of all files
	DoneBytes   int64  // of these, how many are there
	SHA256      string // of one file
	ResumedFrom int64  // bytes that an earlier call had moved
	MovedBytes  int64  // payload bytes that this call received, or knows to have arrived
	Files       int
	Skipped     int // of Files, those that were there already
	Failed      int // of Files
	// Notes say what was left out or failed, and why, at most maxNotes; then which files
	// and folders of a folder got another name than on the VM, at most maxRenamed and
	// how many more.
	Notes []string
}

// Download brings a remote file or folder to the laptop. When ctx ends, the error
// wraps its cause, what has come stays, and the same call goes on from there.
func Download(ctx context.Context, c *client.Client, remote string, to Local, o Options) (Result, error) {
	j := newJob(c, o)
	root, err := openLocal(to.Dir)
	if err != nil {
		return Result{}, err
	}
	defer root.Close()
	st, err := c.Stat(ctx, remote, true, firstDigestWait)
	if err != nil {
		return Result{}, j.annotate(ctx, fmt.Sprintf("downloading %q", remote), err)
	}
	if err := o.Expect.check(st); err != nil {
		return Result{}, fmt.Errorf("downloading %q: %w", remote, err)
	}
	from := newOrigin(to.Runtime, remote)
	name, err := to.nameFor(root, from, st.IsDir)
	if err != nil {
		return Result{}, err
	}
	if st.IsDir {
		return j.downloadFolder(ctx, root, remoteFolder{remote, from}, name)
	}
	j.meter.plan(1, st.SizeBytes)
	got, err := j.downloadFile(ctx, root, requestedFile{remote: remote, name: name, part: partName(name), lastStat: &st})
	return j.resultOf(ctx, got, err)
}

// Upload brings a local file or folder to the VM. An empty remote means
// /content under the file's own name; one that ends in a slash, or names a folder
// that is there, takes the file inside; for a folder, remote without a slash is the
// folder itself, so that the same call twice means the same. When ctx ends, the error
// wraps its cause, what has arrived stays, and the same call goes on from there.
func Upload(ctx context.Context, c *client.Client, local, remote string, o Options) (Result, error) {
	j := newJob(c, o)
	info, err := statLocal(local)
	if err != nil {
		return Result{}, err
	}
	if info.IsDir() {
		return j.uploadFolder(ctx, local, folderTarget(local, remote))
	}
	target, err := j.fileTarget(ctx, local, remote)
	if err != nil {
		return Result{}, j.annotate(ctx, fmt.Sprintf("uploading %q", local), err)
	}
	j.meter.plan(1, info.Size())
	sent, err := j.uploadFile(ctx, sourceFile{name: local, target: target, open: func() (localFile, error) { return j.byPath().open(local) }})
	return j.resultOf(ctx, sent, err)
}

// resultOf is the Result of a transfer of one file.
func (j *job) resultOf(ctx context.Context, one fileResult, err error) (Result, error) {
	r := Result{
		Path: one.path, SizeBytes: one.size, DoneBytes: one.done, SHA256: one.sha,
		ResumedFrom: one.resumed, MovedBytes: j.meter.movedBytes(), Files: 1,
	}
	switch {
	case err != nil:
		r.Failed = 1
	case one.skipped:
		r.Skipped = 1
	}
	return r, err
}

// moved is how the transfer of one file went.
type fileResult struct {
	path    string // where the file is, for people
	local   string // of a download: the same, in the root
	size    int64
	done    int64
	resumed int64
	sha     string
	skipped bool
}

// refusalCode is the code the executor refused with, empty where it did not.
func refusalCode(err error) contract.Code {
	var refused *contract.Error
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}
