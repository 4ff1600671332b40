package transfer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"

	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

// folderDownload is the download of one folder.
type folderDownload struct {
	*job
	root  *os.Root
	top   string // the folder in root
	done  *arrivals
	tally *tally
}

// fetchAll downloads the files of a tree in pages. In each page, files that look the same as local
// ones are compared first, then the others are fetched.
func (f *folderDownload) fetchAll(ctx context.Context, tree *remoteTree) error {
	for page := range tree.pages() {
		if err := f.fetchPage(ctx, page); err != nil {
			return err
		}
	}
	return nil
}

func (f *folderDownload) fetchPage(ctx context.Context, files []remoteEntry) error {
	var todo []remoteEntry
	for _, e := range files {
		if local, ok := f.arrived(e); ok {
			f.skip(e, local)
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
			g.Go(func() error { return f.fetchFile(inner, requestedFile{remote: e.Path, name: e.name}, e) })
		}
	}
	for batch := range groups(small, contract.MaxBatchFiles, contract.MaxBatchRead, func(e remoteEntry) int64 { return e.SizeBytes }) {
		if inner.Err() == nil {
			g.Go(func() error { return f.fetchBatch(inner, batch) })
		}
	}
	return g.Wait()
}

// arrived returns the local name of a file that an earlier call downloaded, if neither copy changed
// since.
func (f *folderDownload) arrived(e remoteEntry) (local string, ok bool) {
	one, ok := f.done.find(e.Path, e.SizeBytes, e.Modified)
	if !ok {
		return "", false
	}
	local = contract.UnescapeName(one.Local)
	info, err := f.root.Lstat(local)
	return local, err == nil && info.Mode().IsRegular() && info.Size() == one.Size && info.ModTime().Equal(one.LocalModified)
}

// recordArrived records that a remote file is complete as local.
func (f *folderDownload) recordArrived(remote contract.File, local string) {
	if info, err := f.root.Lstat(local); err == nil {
		f.done.add(arrival{Key: remote.Path, Size: remote.SizeBytes, Modified: remote.Modified, Local: contract.EscapeName(local), LocalModified: info.ModTime()})
	}
}

// compare returns the files that must be fetched. The laptop has the others already,
// under the same name or, if it may not be overwritten, under a numbered one.
func (f *folderDownload) compare(ctx context.Context, files []remoteEntry) (left []remoteEntry, err error) {
	candidates := map[int][]string{}
	var alike []remoteEntry
	for _, e := range files {
		var names []string
		if e.SizeBytes <= contract.MaxBatchFile { // a larger one is hashed while other files are moving
			names = f.alike(f.root, e.name, e.SizeBytes)
		}
		if len(names) > 0 {
			candidates[len(alike)] = names
			alike = append(alike, e)
		} else {
			left = append(left, e)
		}
	}
	err = f.compareAll(ctx, manifestOf(alike), func(i int, remote contract.Compared) {
		if name, _ := findSame(ctx, f.root, candidates[i], alike[i].SizeBytes, remote.SHA256); name != "" {
			f.recordArrived(alike[i].File, name)
			f.skip(alike[i], name)
		} else {
			left = append(left, alike[i])
		}
	})
	return left, cmp.Or(err, contextError(ctx))
}

// manifestOf asks for the digests of files. The VM learns nothing about local ones.
func manifestOf(files []remoteEntry) contract.Manifest {
	m := contract.Manifest{Path: "/"}
	for _, e := range files {
		m.Files = append(m.Files, contract.ManifestFile{Name: strings.TrimPrefix(e.Path, "/"), SizeBytes: e.SizeBytes})
	}
	return m
}

// skip counts a file that already exists as local.
func (f *folderDownload) skip(e remoteEntry, local string) {
	keepExecutable(f.root, local, e.File)
	f.meter.add(e.name, StageMoving, e.SizeBytes)
	f.meter.finish(e.name)
	f.tally.addRenamed(e.File, f.top, local)
	_ = f.tally.add(context.Background(), plain.QuoteName(e.Path), fileResult{skipped: true, done: e.SizeBytes}, nil)
}

// fetchFile downloads one file and counts it.
func (f *folderDownload) fetchFile(ctx context.Context, w requestedFile, e remoteEntry) error {
	got, err := f.downloadFile(ctx, f.root, w)
	if err == nil {
		remote := got.remote.File
		remote.Path = e.Path
		f.recordArrived(remote, got.local)
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
	w := requestedFile{remote: e.Path, name: e.name}
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
	if err := j.listTree(ctx, &tree, remote.path, func(name string) string { return localName(name, onWindows) }); err != nil {
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
	done, err := openArrivals(j.records, root, at.name, remote.path)
	if err != nil {
		return r, err
	}
	j.meter.plan(tree.count, tree.bytes)
	f := &folderDownload{job: j, root: root, top: at.name, done: done, tally: &tally{r: &r, renamed: tree.renamed}}
	err = f.tally.outcome(ctx, f.fetchAll(ctx, &tree))
	r.MovedBytes = j.meter.moved.Load()
	done.close(err == nil)
	return r, j.annotate(ctx, doing, err)
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
