package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"colabrelay/shared/contract"
)

// localEntry is a file of a local tree.
type localEntry struct {
	name string // in the root, with slashes
	info fs.FileInfo
	link bool
}

// localTree is the content of a local folder, with all its subfolders.
type localTree struct {
	files   []localEntry
	folders []string // in the root
	bytes   int64
	notes   []string
}

// uploadFolder lists a whole tree, then uploads its files.
func (j *job) uploadFolder(ctx context.Context, local, target string) (Result, error) {
	r := Result{Path: target, IsDir: true}
	doing := fmt.Sprintf("uploading %q", local)
	root, err := os.OpenRoot(local)
	if err != nil {
		return r, fmt.Errorf("opening the folder %q: %w", local, err)
	}
	defer root.Close()
	tree, err := walkLocal(ctx, root)
	if err == nil {
		err = j.guard.checkTree(root, tree)
	}
	var made contract.Upload
	if err == nil {
		made, err = j.client.StartUpload(ctx, contract.UploadStart{Path: strings.TrimRight(target, "/") + "/"}, 0)
	}
	if err != nil {
		return r, j.annotate(ctx, doing, err)
	}
	r.Path = made.Path
	j.meter.plan(len(tree.files), tree.bytes)
	r.Files, r.SizeBytes, r.Notes = len(tree.files), tree.bytes, tree.notes
	s := &folderUpload{job: j, root: root, local: local, target: target, tally: &tally{r: &r}, instance: j.client.InstanceID(), base: made.Path}
	if j.options.RecordDir != "" {
		if j.records, err = openRecords(j.options.RecordDir, root); err == nil {
			defer j.records.close()
			s.done, _ = openArrivals(j.records, root, ".", target) // without one, a repeated call takes longer
		}
	}
	err = s.tally.outcome(ctx, s.sendAll(ctx, &tree))
	s.done.close(err == nil)
	r.Notes = j.recordUploads(r.Notes)
	r.MovedBytes = j.meter.moved.Load()
	return r, j.annotate(ctx, doing, err)
}

// neverSent are the names of folders that programs keep for themselves, and change while they
// run: an executor's state, and Python's compiled modules.
var neverSent = []string{".colab-relay", "__pycache__"}

// walkLocal lists a tree without the folders of neverSent. Links to files inside it count as
// files. It follows no other links and does not open special files.
func walkLocal(ctx context.Context, root *os.Root) (localTree, error) {
	t, passed := localTree{}, 0
	for todo := []string{"."}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		t.folders = append(t.folders, at)
		found, err := readFolder(ctx, root, at, maxEntries-len(t.folders)-len(t.files)-len(todo))
		if err != nil {
			return t, err
		}
		for _, e := range found {
			name := path.Join(at, e.Name())
			if e.IsDir() {
				if slices.Contains(neverSent, e.Name()) {
					passed++
				} else {
					todo = append(todo, name)
				}
				continue
			}
			info, err := root.Stat(name)
			switch {
			case err != nil:
				t.notes = addNote(t.notes, fmt.Sprintf("%q: skipped, because it is a link that is dangling or leaves the folder", name))
			case info.IsDir():
				t.notes = addNote(t.notes, fmt.Sprintf("%q: skipped, because it is a link to a folder", name))
			case !info.Mode().IsRegular():
				t.notes = addNote(t.notes, fmt.Sprintf("%q: skipped, because it is neither a file nor a folder", name))
			default:
				t.files, t.bytes = append(t.files, localEntry{name, info, e.Type()&fs.ModeSymlink != 0}), t.bytes+info.Size()
			}
		}
	}
	if passed > 0 {
		t.notes = append([]string{fmt.Sprintf("folders that were skipped, because they are named %s: %d", strings.Join(neverSent, " or "), passed)}, t.notes...)
	}
	return t, nil
}

// readFolder returns all entries of a local folder, or ErrTooMany beyond limit.
func readFolder(ctx context.Context, root *os.Root, name string, limit int) (all []fs.DirEntry, err error) {
	const batch = 1000
	f, err := root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("listing %q: %w", absolute(root, name), err)
	}
	defer f.Close()
	for ctx.Err() == nil {
		some, err := f.ReadDir(batch)
		all = append(all, some...)
		switch {
		case len(all) > limit:
			return nil, fmt.Errorf("%w: %q has more than %d entries", ErrTooMany, root.Name(), maxEntries)
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("listing %q: %w", absolute(root, name), err)
		}
	}
	return nil, context.Cause(ctx)
}

// bare returns the folders that contain neither files nor folders.
func (t *localTree) bare() []string {
	filled := map[string]bool{}
	for _, e := range t.files {
		filled[path.Dir(e.name)] = true
	}
	for _, folder := range t.folders[1:] {
		filled[path.Dir(folder)] = true
	}
	return slices.DeleteFunc(slices.Clone(t.folders[1:]), func(folder string) bool { return filled[folder] })
}
