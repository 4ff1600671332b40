package transfer

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"colabrelay/shared/contract"
)

// Bounds of a page, the files that one request compares. They keep the body far below
// contract.MaxBodyBytes, and a call of limited time completes at least one page.
const (
	pageFiles = contract.MaxManifestFiles / 2
	pageBytes = contract.MaxBodyBytes / 2
	lineBytes = 300 // of a file in a manifest, besides its name
)

// folderUpload is the upload of one folder.
type folderUpload struct {
	*job
	root   *os.Root
	local  string
	target string
	sent   *sentFiles
	tally  *tally
	// instance is the executor at the start of the upload, and base the folder's path there.
	instance, base string
}

// errNewVM ends the upload of a folder. Its first files are on a VM that is gone, and the
// new VM would get only the others.
var errNewVM = &contract.Error{
	Code:    contract.CodeNewInstance,
	Message: "another VM took over the address during the upload of the folder",
	Hint:    "Call again to upload the whole folder to the new VM.",
}

// candidate is a file of the folder, with its record.
type candidate struct {
	localEntry
	key    string   // its name on the VM, below the folder
	record sentFile // without a digest if the file was not read yet
	// replaces is the digest of the file that an earlier upload put there, or "".
	replaces string
	earlier  bool // an earlier upload put a file there
}

// sendAll uploads a tree in pages. Each page is compared with the files on the VM, then the
// missing files are sent.
func (s *folderUpload) sendAll(ctx context.Context, t *localTree) error {
	for page := range groups(t.files, pageFiles, pageBytes, func(e localEntry) int64 { return lineLen(e.name) }) {
		if err := s.sendPage(ctx, page); err != nil {
			return err
		}
		if s.client.InstanceID() != s.instance {
			return errNewVM
		}
		_ = s.last.save() // the end of the upload tries again, and reports the error
	}
	return s.makeFolders(ctx, t.bare())
}

// groups splits items, in order, into groups of at most `most` items and limit bytes. An item
// of more bytes makes a group alone.
func groups[T any](items []T, most int, limit int64, size func(T) int64) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(items) > 0 {
			n, bytes := 1, size(items[0])
			for n < min(len(items), most) {
				if bytes += size(items[n]); bytes > limit {
					break
				}
				n++
			}
			if !yield(items[:n]) {
				return
			}
			items = items[n:]
		}
	}
}

// lineLen returns about how many bytes a file takes in a manifest.
func lineLen(name string) int64 {
	text, _ := json.Marshal(contract.EscapeName(name)) // a string can be encoded
	return int64(len(text)) + lineBytes
}

func (s *folderUpload) sendPage(ctx context.Context, files []localEntry) error {
	page := make([]candidate, len(files))
	for i, e := range files {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		page[i] = s.prepare(ctx, e)
		earlier := s.last.digest(s.instance, s.base+"/"+page[i].key)
		page[i].earlier = earlier != ""
		if !s.options.Overwrite {
			page[i].replaces = earlier
		}
	}
	remote, err := s.compare(ctx, page)
	if err == nil {
		err = refuseTaken(page, remote)
	}
	if err != nil {
		return err
	}
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(filesAtOnce)
	var small []candidate
	for i, c := range page {
		switch {
		case inner.Err() != nil:
		case remote[i].State == contract.StateSame:
			s.skip(c, remote[i])
		case remote[i].State == contract.StateAbsent && c.record.SHA256 != "" && c.size() <= contract.MaxBatchFile:
			small = append(small, c)
		default:
			g.Go(func() error { return s.sendFile(inner, c, remote[i].State == contract.StateAbsent) })
		}
	}
	for batch := range s.batches(small) {
		if inner.Err() == nil {
			g.Go(func() error { return s.batch(inner, batch) })
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	var executable []string
	for _, c := range page {
		if isExecutable(c.info) {
			executable = append(executable, c.key)
		}
	}
	notes, err := s.makeExecutable(ctx, s.base, executable)
	for _, note := range notes {
		s.tally.r.Notes = addNote(s.tally.r.Notes, note)
	}
	return err
}

// maxTaken bounds how many files the error about existing ones names.
const maxTaken = 5

// refuseTaken returns ErrExists if the VM has other files in place of some. It names the
// first ones.
func refuseTaken(page []candidate, remote []contract.Compared) error {
	var taken []string
	for i, c := range page {
		if remote[i].State == contract.StateTaken {
			taken = append(taken, fmt.Sprintf("%q", c.name))
		}
	}
	if len(taken) == 0 {
		return nil
	}
	slices.Sort(taken)
	if more := len(taken) - maxTaken; more > 0 {
		taken = append(taken[:maxTaken], fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("%w: %s; they were not uploaded from here, changed there since, or have a link in their path; none was replaced", ErrExists, strings.Join(taken, ", "))
}

// prepare finds the record of a file, or hashes the file if it is small. A large file is
// hashed only when it is sent. A file that cannot be read is left to sendFile, which
// reports the error.
func (s *folderUpload) prepare(ctx context.Context, e localEntry) candidate {
	c := candidate{localEntry: e, key: contract.EscapeName(e.name)}
	if record, ok := s.sent.find(c.key, e.info); ok {
		c.record = record
		return c
	}
	if e.size() > contract.MaxBatchFile {
		return c
	}
	f, err := s.inRoot(s.root).open(e.name)
	if err != nil {
		return c
	}
	defer f.Close()
	started := time.Now()
	u := &upload{job: s.job, sourceFile: s.source(c), file: f, size: f.info.Size()}
	if sha, err := u.hash(ctx, s.meter.checker(u.name, StageHashing)); err == nil && sameState(e.info, f.info) {
		c.record = newSentFile(c.key, f.info, started, sha)
	}
	return c
}

// compare compares a page with the files on the VM, and records those that are the same
// immediately, so that the next call resumes a slow comparison.
func (s *folderUpload) compare(ctx context.Context, page []candidate) ([]contract.Compared, error) {
	m := contract.Manifest{Path: s.target}
	for _, c := range page {
		m.Files = append(m.Files, contract.ManifestFile{Name: c.key, SizeBytes: c.size(), SHA256: c.record.SHA256, ETag: c.record.ETag, Replaces: s.options.replaces(c.replaces)})
	}
	return s.compareAll(ctx, m, func(i int, remote contract.Compared) {
		if file := page[i].record; remote.State == contract.StateSame && file.SHA256 != "" {
			file.ETag = remote.ETag
			s.sent.add(file)
			s.last.add(s.instance, remote.Path, file.SHA256, s.source(page[i]).name)
		}
	})
}

// compareAll sends requests until the executor has compared all files. It passes each
// result to record as it arrives.
func (j *job) compareAll(ctx context.Context, m contract.Manifest, record func(i int, remote contract.Compared)) ([]contract.Compared, error) {
	all := make([]contract.Compared, 0, len(m.Files))
	for len(m.Files) > 0 {
		some, err := j.client.Compare(ctx, m)
		if err != nil {
			return nil, err
		}
		for i, one := range some {
			record(len(all)+i, one)
		}
		all = append(all, some...)
		m.Files = m.Files[len(some):]
	}
	return all, nil
}

// skip counts a file that is on the VM already.
func (s *folderUpload) skip(c candidate, remote contract.Compared) {
	s.meter.add(c.name, StageMoving, c.size())
	s.meter.finish(c.name)
	_ = s.tally.add(context.Background(), strconv.Quote(c.name), fileResult{path: remote.Path, size: c.size(), done: c.size(), skipped: true}, nil)
}

// sendFile uploads one file and counts it.
func (s *folderUpload) sendFile(ctx context.Context, c candidate, fresh bool) error {
	o := s.source(c)
	o.absent = fresh
	got, err := s.uploadFile(ctx, o)
	got.replaced = got.replaced || c.earlier
	return s.tally.add(ctx, strconv.Quote(c.name), got, err)
}

func (s *folderUpload) source(c candidate) sourceFile {
	return sourceFile{
		name: filepath.Join(s.local, filepath.FromSlash(c.name)), target: s.target + "/" + c.key,
		sent: s.sent, key: c.key, replaces: c.replaces,
		open: func() (localFile, error) { return s.inRoot(s.root).open(c.name) },
	}
}
