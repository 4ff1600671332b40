package transfer

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"

	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// Bounds of a page of a download, which takes memory until its files are here, however slowly a VM
// sends them: files, and bytes of their names.
const (
	downloadPage  = 2 * contract.MaxBatchFiles
	downloadNames = 512 << 10
)

// folderDownload is the download of one folder.
type folderDownload struct {
	*job
	root      *os.Root
	top       string // the folder in root
	completed *completedFiles
	tally     *tally
}

// fetchAll downloads the files of a tree in pages. In each page, files that look the same as local
// ones are compared first, then the others are fetched.
func (f *folderDownload) fetchAll(ctx context.Context, tree *remoteTree) error {
	var page []remoteEntry
	names := 0
	for e := range tree.files() {
		size := len(e.Path) + len(e.name) + len(e.part)
		if names += size; len(page) == downloadPage || names > downloadNames && len(page) > 0 {
			if err := f.fetchPage(ctx, page); err != nil {
				return err
			}
			page, names = page[:0], size
		}
		page = append(page, e)
	}
	if len(page) == 0 {
		return nil
	}
	return f.fetchPage(ctx, page)
}

func (f *folderDownload) fetchPage(ctx context.Context, files []remoteEntry) error {
	var todo []remoteEntry
	for _, e := range files {
		has, ok := f.completed.find(f.root, e, func(file completedFile) bool {
			_, err := f.client.Prefix(ctx, e.Path, file.ETag, 0, 0)
			return err == nil
		})
		if ok {
			note := ""
			if has.Size < e.SizeBytes {
				note = grownNote(plain.QuoteName(e.Path), "download", has.Size)
			}
			f.skip(e, has.Local, note)
		} else {
			todo = append(todo, e)
		}
	}
	todo, err := f.compare(ctx, todo)
	if err != nil {
		return err
	}
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(filesAtOnce)
	var small []remoteEntry
	for _, e := range todo {
		if e.SizeBytes <= contract.MaxBatchFile {
			small = append(small, e)
		} else if inner.Err() == nil {
			g.Go(func() error { return f.fetchFile(inner, requestedFile{remote: e.Path, name: e.name, part: e.part}, e) })
		}
	}
	for batch := range groups(small, contract.MaxBatchFiles, contract.MaxBatchRead, func(e remoteEntry) int64 { return e.SizeBytes }) {
		if inner.Err() == nil {
			g.Go(func() error { return f.fetchBatch(inner, batch) })
		}
	}
	return g.Wait()
}

// compare returns the files that must be fetched. The laptop has the others already,
// under the same name or, if it may not be overwritten, under a numbered one.
func (f *folderDownload) compare(ctx context.Context, files []remoteEntry) ([]remoteEntry, error) {
	m := contract.Manifest{Path: "/"}
	type local struct {
		entry int
		name  string
	}
	var queried []local
	for i, e := range files {
		for _, name := range f.sameSize(e) {
			sha, err := f.localDigest(ctx, f.root, name, e.SizeBytes)
			if err != nil && ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if err == nil {
				queried = append(queried, local{i, name})
				m.Files = append(m.Files, contract.ManifestFile{Name: strings.TrimPrefix(e.Path, "/"), SizeBytes: e.SizeBytes, SHA256: sha})
			}
		}
	}
	same := make([]bool, len(files))
	_, err := f.compareAll(ctx, m, func(k int, remote contract.Compared) {
		i := queried[k].entry
		if remote.State == contract.StateSame && !same[i] {
			same[i] = true
			f.completed.add(f.root, contract.FileStat{File: files[i].File, ETag: remote.ETag}, queried[k].name)
			f.skip(files[i], queried[k].name, "")
		}
	})
	if err != nil {
		return nil, err
	}
	var left []remoteEntry
	for i, e := range files {
		if !same[i] {
			left = append(left, e)
		}
	}
	return left, nil
}

// maxSame bounds how many numbered names are compared to find the same file.
const maxSame = 20

// sameSize returns the local files that may be e, judged by name and size. It leaves large
// files to downloadFile, which hashes them while other files are moving.
func (f *folderDownload) sameSize(e remoteEntry) []string {
	var names []string
	for i := 0; i < maxSame && e.SizeBytes <= contract.MaxBatchFile; i++ {
		name := filename.Numbered(e.name, i)
		info, err := f.root.Lstat(name)
		if err != nil {
			break
		}
		if info.Mode().IsRegular() && info.Size() == e.SizeBytes {
			names = append(names, name)
		}
		if f.options.Overwrite {
			break
		}
	}
	return names
}

// skip counts a file that already exists as local.
func (f *folderDownload) skip(e remoteEntry, local, note string) {
	keepExecutable(f.root, local, e.File)
	f.meter.add(e.name, StageMoving, e.SizeBytes)
	f.meter.finish(e.name)
	f.tally.addRenamed(e.File, f.top, local)
	_ = f.tally.add(context.Background(), plain.QuoteName(e.Path), fileResult{skipped: true, done: e.SizeBytes, note: note}, nil)
}

// fetchFile downloads one file and counts it.
func (f *folderDownload) fetchFile(ctx context.Context, w requestedFile, e remoteEntry) error {
	got, err := f.downloadFile(ctx, f.root, w)
	if err == nil {
		got.remote.Path = e.Path
		f.completed.add(f.root, got.remote, got.local)
		f.tally.addRenamed(e.File, f.top, got.local)
	}
	return f.tally.add(ctx, plain.QuoteName(e.Path), got, err)
}

// fetchBatch downloads small files with few requests. A file that changed or grew is
// downloaded on its own.
func (f *folderDownload) fetchBatch(ctx context.Context, files []remoteEntry) error {
	for len(files) > 0 {
		paths := make([]string, len(files))
		for i, e := range files {
			paths[i] = e.Path
		}
		contents, bytes, err := f.client.Contents(ctx, paths)
		if err != nil {
			return err
		}
		for i, c := range contents {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := f.storeFile(ctx, files[i], c, bytes[i]); err != nil {
				return err
			}
		}
		files = files[len(contents):]
	}
	return nil
}

// storeFile stores a file of a batch. Its bytes are complete and covered by the answer's
// signature.
func (f *folderDownload) storeFile(ctx context.Context, e remoteEntry, c contract.Content, bytes []byte) error {
	w := requestedFile{remote: e.Path, name: e.name, part: e.part}
	switch {
	case c.Error == nil && c.ETag != "":
		st := contract.FileStat{File: e.File, ETag: c.ETag, SHA256: fmt.Sprintf("%x", sha256.Sum256(bytes))}
		st.SizeBytes, st.Modified = c.SizeBytes, c.Modified
		w.lastStat, w.content = &st, bytes
	case c.Error == nil, c.Error.Code == contract.CodeChanged, c.Error.Code == contract.CodeTooLarge:
	default:
		f.meter.finish(e.name)
		return f.tally.add(ctx, plain.QuoteName(e.Path), fileResult{}, fmt.Errorf("downloading %s: %w", plain.QuoteName(e.Path), error(c.Error)))
	}
	return f.fetchFile(ctx, w, e)
}

// remoteFolder is a remote folder and the mark that its local copy gets.
type remoteFolder struct {
	path string
	from origin
}

// downloadFolder lists a whole tree, then downloads its files.
func (j *job) downloadFolder(ctx context.Context, root *os.Root, remote remoteFolder, name string) (Result, error) {
	r := Result{Path: absolute(root, name), IsDir: true}
	doing := "downloading " + plain.QuoteName(remote.path)
	var tree remoteTree
	defer tree.free()
	if err := j.listTree(ctx, &tree, remote.path, newNamer(root).name); err != nil {
		return r, j.annotate(ctx, doing, err)
	}
	at, err := j.claimFolder(root, name, remote.from, func(name string) (bool, error) { return j.isSameTree(ctx, root, name, &tree) })
	r.Path = absolute(root, at.name)
	if err != nil {
		return r, j.annotate(ctx, doing, err)
	}
	defer at.unlock()
	r.Files, r.SizeBytes, r.Notes, r.LeftOut = tree.count, tree.bytes, tree.notes, tree.leftOut
	if at.same {
		tree.top = at.name
		for e := range tree.files() {
			keepExecutable(root, e.name, e.File)
		}
		r.Skipped, r.DoneBytes, r.MovedBytes = r.Files, r.SizeBytes, j.meter.moved.Load()
		return r, nil
	}
	tree.top = at.name
	if err := remote.from.save(j.records, at.name); err != nil {
		return r, err
	}
	if err := makeTree(root, tree.folders()); err != nil {
		return r, err
	}
	completed, err := openCompletedFiles(j.records, at.name, remote.path)
	if err != nil {
		return r, err
	}
	j.meter.plan(tree.count, tree.bytes)
	f := &folderDownload{job: j, root: root, top: at.name, completed: completed, tally: &tally{r: &r, renamed: tree.renamed}}
	err = f.tally.outcome(ctx, f.fetchAll(ctx, &tree))
	r.MovedBytes = j.meter.moved.Load()
	return r, j.annotate(ctx, doing, completed.close(j.records, err))
}

// addNote appends line, up to maxNotes lines in all.
func addNote(notes []string, line string) []string {
	switch {
	case len(notes) < maxNotes-1:
		return append(notes, line)
	case len(notes) == maxNotes-1:
		return append(notes, "further notes are omitted")
	}
	return notes
}
