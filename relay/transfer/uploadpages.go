package transfer

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"colabrelay/shared/contract"
)

// Bounds of what is compared by one request, so that its body stays far under
// contract.MaxBodyBytes and a call that has little time notes a page's worth at least.
const (
	pageFiles = contract.MaxManifestFiles / 2
	pageBytes = contract.MaxBodyBytes / 2
	lineBytes = 200 // of a file's line in a manifest, beside its name
)

// sending is a folder on its way to the VM.
type folderUpload struct {
	*job
	root   *os.Root
	local  string
	target string
	sent   *sentFiles
	tally  *tally
	// instance is the executor that the upload began with.
	instance string
}

// errNewVM ends a folder's upload: its first files are on a VM that is gone, and those to
// come would make half a folder on the new one.
var errNewVM = &contract.Error{
	Code:    contract.CodeNewInstance,
	Message: "another VM took over the address while the folder was on its way",
	Hint:    "call again: the whole folder goes to the new VM",
}

// candidate is a file of the folder, and what is known of it.
type candidate struct {
	localEntry
	key    string   // its name on the VM, below the folder
	record sentFile // its digest is empty where it was not read yet
}

// all sends a tree, page after page: each is compared with what the VM has, then what
// is missing goes.
func (s *folderUpload) sendAll(ctx context.Context, t *localTree) error {
	if err := s.makeFolders(ctx, t.bare()); err != nil {
		return err
	}
	for todo := t.files; len(todo) > 0; {
		n := pageSize(len(todo), func(i int) string { return todo[i].name })
		if err := s.sendPage(ctx, todo[:n]); err != nil {
			return err
		}
		if s.client.InstanceID() != s.instance {
			return errNewVM
		}
		todo = todo[n:]
	}
	return nil
}

// pageOf is how many of the first n files are compared at once.
func pageSize(n int, name func(i int) string) int {
	bytes := 0
	for i := range min(n, pageFiles) {
		if bytes += quotedLen(name(i)) + lineBytes; bytes > pageBytes && i > 0 {
			return i
		}
	}
	return min(n, pageFiles)
}

// quotedLen is how many bytes a name takes in JSON.
func quotedLen(name string) int {
	text, err := json.Marshal(contract.EscapeName(name))
	if err != nil {
		panic(err) // a string
	}
	return len(text)
}

func (s *folderUpload) sendPage(ctx context.Context, files []localEntry) error {
	page := make([]candidate, len(files))
	for i, e := range files {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		page[i] = s.prepare(ctx, e)
	}
	there, err := s.compare(ctx, page)
	if err != nil {
		return err
	}
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(filesAtOnce)
	var small []candidate
	for i, c := range page {
		switch {
		case inner.Err() != nil:
		case there[i].State == contract.StateSame:
			s.skip(c, there[i])
		case there[i].State == contract.StateAbsent && c.record.SHA256 != "" && c.size() <= contract.MaxBatchFile:
			small = append(small, c)
		default:
			g.Go(func() error { return s.sendFile(inner, c, there[i].State == contract.StateAbsent) })
		}
	}
	for len(small) > 0 && inner.Err() == nil {
		n := batchSize(small)
		batch := small[:n]
		small = small[n:]
		g.Go(func() error { return s.batch(inner, batch) })
	}
	return g.Wait()
}

// learn finds the digest of a small file. That of a large one is left for when it is
// needed; a file that can't be read is left to single, which says why.
func (s *folderUpload) prepare(ctx context.Context, e localEntry) candidate {
	c := candidate{localEntry: e, key: contract.EscapeName(e.name)}
	if line, ok := s.sent.find(c.key, e.info); ok {
		c.record = line
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
	began := time.Now()
	u := &upload{job: s.job, sourceFile: s.source(c), file: f, size: f.info.Size()}
	if sha, err := u.hash(ctx); err == nil && sameState(e.info, f.info) {
		c.record = newSentFile(c.key, f.info, began, sha)
	}
	return c
}

// compare asks what the VM has of a page.
func (s *folderUpload) compare(ctx context.Context, page []candidate) ([]contract.Compared, error) {
	m := contract.Manifest{Path: s.target, Overwrite: s.options.Overwrite}
	for _, c := range page {
		m.Files = append(m.Files, contract.ManifestFile{Name: c.key, SizeBytes: c.size(), SHA256: c.record.SHA256, ETag: c.record.ETag})
	}
	return s.compareAll(ctx, m, func(i int, there contract.Compared) { s.recordSame(page[i].record, there) })
}

// compareAll asks until the executor answered about all files. Each answer is given to
// note as it comes.
func (j *job) compareAll(ctx context.Context, m contract.Manifest, note func(i int, there contract.Compared)) ([]contract.Compared, error) {
	all := make([]contract.Compared, 0, len(m.Files))
	for len(m.Files) > 0 {
		some, err := j.client.Compare(ctx, m)
		if err != nil {
			return nil, err
		}
		for i, one := range some {
			note(len(all)+i, one)
		}
		all = append(all, some...)
		m.Files = m.Files[len(some):]
	}
	return all, nil
}

// noteSame remembers a file that the VM has, at once: a slow comparison goes on from
// there in the next call.
func (s *folderUpload) recordSame(line sentFile, there contract.Compared) {
	if there.State == contract.StateSame && line.SHA256 != "" {
		line.ETag = there.ETag
		s.sent.add(line)
	}
}

// skip counts a file that is there already.
func (s *folderUpload) skip(c candidate, there contract.Compared) {
	s.meter.add(c.name, StageMoving, c.size())
	s.meter.finish(c.name)
	_ = s.tally.add(context.Background(), c.name, fileResult{path: there.Path, size: c.size(), done: c.size(), skipped: true}, nil)
}

// single sends one file by itself.
func (s *folderUpload) sendFile(ctx context.Context, c candidate, fresh bool) error {
	o := s.source(c)
	o.absent = fresh
	got, err := s.uploadFile(ctx, o)
	return s.tally.add(ctx, c.name, got, err)
}

func (s *folderUpload) source(c candidate) sourceFile {
	return sourceFile{
		name: filepath.Join(s.local, filepath.FromSlash(c.name)), target: s.target + "/" + c.key,
		sent: s.sent, key: c.key,
		open: func() (localFile, error) { return s.inRoot(s.root).open(c.name) },
	}
}
