package transfer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"colabrelay/relay/client"
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
	done   *arrivals
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

// candidate is a file of the folder.
type candidate struct {
	sourceFile
	short  string // its name below the folder, with slashes
	info   fs.FileInfo
	record arrival // without a digest if the file was not read yet
}

func (c candidate) size() int64 { return c.info.Size() }

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
		c.absent = remote[i].State == contract.StateAbsent
		switch {
		case inner.Err() != nil:
		case remote[i].State == contract.StateSame:
			_ = s.counted(context.Background(), c, fileResult{path: remote[i].Path, skipped: true})
		case c.absent && c.record.SHA256 != "" && c.size() <= contract.MaxBatchFile:
			small = append(small, c)
		default:
			g.Go(func() error { return s.sendFile(inner, c) })
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
			taken = append(taken, strconv.Quote(c.short))
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
	key := contract.EscapeName(e.name)
	c := candidate{short: e.name, info: e.info, sourceFile: sourceFile{
		name: filepath.Join(s.local, filepath.FromSlash(e.name)), target: s.target + "/" + key, done: s.done, key: key,
		open:    func() (localFile, error) { return s.inRoot(s.root).open(e.name) },
		earlier: s.last.digest(s.instance, s.base+"/"+key),
	}}
	if record, ok := s.done.find(key, c.size(), e.info.ModTime()); ok && contract.SHA256Pattern().MatchString(record.SHA256) {
		c.record = record
		return c
	}
	if c.size() > contract.MaxBatchFile {
		return c
	}
	f, err := c.open()
	if err != nil {
		return c
	}
	defer f.Close()
	started := time.Now()
	u := &upload{job: s.job, sourceFile: c.sourceFile, file: f, size: f.info.Size()}
	if sha, err := u.hash(ctx, s.meter.checker(u.name, StageHashing)); err == nil && sameState(e.info, f.info) {
		c.record = newArrival(key, f.info, started, sha)
	}
	return c
}

// describe describes a file for the VM.
func (s *folderUpload) describe(c candidate) contract.ManifestFile {
	return contract.ManifestFile{Name: c.key, SizeBytes: c.size(), SHA256: c.record.SHA256, ETag: c.record.ETag, Replaces: s.options.replaces(c.earlier)}
}

// compare compares a page with the files on the VM, and records those that are the same
// immediately, so that the next call resumes a slow comparison.
func (s *folderUpload) compare(ctx context.Context, page []candidate) ([]contract.Compared, error) {
	m := contract.Manifest{Path: s.target}
	for _, c := range page {
		m.Files = append(m.Files, s.describe(c))
	}
	all := make([]contract.Compared, 0, len(page))
	err := s.compareAll(ctx, m, func(i int, remote contract.Compared) {
		all = append(all, remote)
		if remote.State == contract.StateSame && page[i].record.SHA256 != "" {
			s.recordRemote(page[i].sourceFile, &page[i].record, remote.Path, remote.ETag)
		}
	})
	return all, err
}

// compareAll sends requests until the executor has compared all files. It passes each
// result, in order, to record as it arrives.
func (j *job) compareAll(ctx context.Context, m contract.Manifest, record func(i int, remote contract.Compared)) error {
	for n := 0; n < len(m.Files); {
		some, err := j.client.Compare(ctx, contract.Manifest{Path: m.Path, Files: m.Files[n:]})
		if err != nil {
			return err
		}
		for _, one := range some {
			record(n, one)
			n++
		}
	}
	return nil
}

// counted counts a file that is on the VM and was not sent on its own.
func (s *folderUpload) counted(ctx context.Context, c candidate, got fileResult) error {
	got.size, got.done = c.size(), c.size()
	s.meter.add(c.short, StageMoving, c.size())
	s.meter.finish(c.short)
	return s.tally.add(ctx, strconv.Quote(c.short), got, nil)
}

// sendFile uploads one file and counts it.
func (s *folderUpload) sendFile(ctx context.Context, c candidate) error {
	got, err := s.uploadFile(ctx, c.sourceFile)
	return s.tally.add(ctx, strconv.Quote(c.short), got, err)
}

// batchBytes bounds a batch.
const batchBytes = partBytes

// batch sends small files in one request. A file that changed since it was hashed is sent on its own.
func (s *folderUpload) batch(ctx context.Context, files []candidate) error {
	answers, err := s.sendBatch(ctx, files)
	if client.Shrinks(err) {
		return s.splitBatch(ctx, files)
	}
	if err != nil {
		return err
	}
	for i, c := range files {
		switch a := answers[i]; {
		case a == nil || a.Error != nil && a.Error.Code == contract.CodeChanged:
			c.absent = false
			err = s.sendFile(ctx, c)
		case a.Error != nil:
			s.meter.finish(c.short)
			err = s.tally.add(ctx, strconv.Quote(c.short), fileResult{}, fmt.Errorf("uploading %q: %w", c.short, asLocal(a.Error)))
		default:
			s.recordRemote(c.sourceFile, &c.record, a.Path, a.ETag)
			s.meter.moved.Add(c.size())
			err = s.counted(ctx, c, fileResult{path: a.Path, replaced: c.earlier != ""})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// splitBatch sends the files of a batch that a proxy did not accept in smaller ones.
func (s *folderUpload) splitBatch(ctx context.Context, files []candidate) error {
	if len(files) == 1 {
		return s.sendFile(ctx, files[0])
	}
	for batch := range s.batches(files) {
		if err := s.batch(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// batches groups files so that each group makes one batch.
func (s *folderUpload) batches(files []candidate) iter.Seq[[]candidate] {
	most := min(batchBytes, s.client.MostBody())
	return groups(files, contract.MaxBatchFiles, most, func(c candidate) int64 { return c.size() + lineLen(c.short) })
}

// sendBatch returns the executor's answer about each file, nil if it was not sent.
func (s *folderUpload) sendBatch(ctx context.Context, files []candidate) ([]*contract.BatchedFile, error) {
	done, err := s.slot(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	body, m := make([]byte, 0, batchBytes), contract.Manifest{Path: s.target, Overwrite: s.options.Overwrite}
	var sent []int
	for i, c := range files {
		if longer, ok := c.read(body); ok {
			body, sent = longer, append(sent, i)
			m.Files = append(m.Files, s.describe(c))
		}
	}
	out := make([]*contract.BatchedFile, len(files))
	if len(sent) == 0 {
		return out, nil
	}
	answers, err := s.putBatch(ctx, body, m)
	if err != nil {
		return nil, err
	}
	for k, i := range sent {
		out[i] = &answers[k]
	}
	return out, nil
}

func (j *job) putBatch(ctx context.Context, files []byte, m contract.Manifest) ([]contract.BatchedFile, error) {
	body, err := contract.AppendIndex(files, m)
	if err != nil {
		return nil, err
	}
	return j.client.PutBatch(ctx, body, len(m.Files))
}

// read appends the file's bytes to body. If they are others than those that were hashed, the executor
// tells.
func (c candidate) read(body []byte) ([]byte, bool) {
	f, err := c.open()
	if err != nil {
		return body, false
	}
	defer f.Close()
	if f.info.Size() != c.size() { // sendFile tells whether it only grew
		return body, false
	}
	at := len(body)
	longer := append(body, make([]byte, c.size())...)
	if _, err := io.ReadFull(f, longer[at:]); err != nil {
		return body, false
	}
	return longer, true
}

// makeFolders creates empty folders. The executor creates all others with their files.
func (s *folderUpload) makeFolders(ctx context.Context, folders []string) error {
	for group := range groups(folders, contract.MaxBatchFiles, batchBytes, lineLen) {
		m := contract.Manifest{Path: s.target}
		for _, folder := range group {
			m.Files = append(m.Files, contract.ManifestFile{Name: contract.EscapeName(folder) + "/"})
		}
		answers, err := s.putBatch(ctx, nil, m)
		if err != nil {
			return err
		}
		for k, a := range answers {
			if a.Error != nil {
				return fmt.Errorf("creating the folder %q: %w", m.Files[k].Name, a.Error)
			}
		}
	}
	return nil
}
