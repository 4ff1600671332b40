package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path"
	"strings"

	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
	"colabrelay/shared/memory"
)

// remoteTree is the content of a remote folder, with all its subfolders. A VM can list 100,000
// files with long names: what all trees of the process take is bounded (memory.Trees), and no path
// is kept that follows from folder and name.
type remoteTree struct {
	top     string // the local folder of the tree
	dirs    []*remoteDir
	count   int // files
	bytes   int64
	notes   []string
	leftOut LeftOut
	renamed renames // of the folders
	taken   int64   // of memory.Trees
}

// remoteDir is a folder of a remote tree.
type remoteDir struct {
	path  string // on the VM
	name  string // local, below the tree's own, with slashes
	files []treeFile
}

// treeFile is a file of a remote folder, without its path; while that is listed, any entry of it.
type treeFile struct {
	contract.File
	local string // name; empty if it is the same
}

// remoteEntry is a file of a remote tree and its local name.
type remoteEntry struct {
	contract.File
	name string // in the root, with slashes
}

// Bounds of a page of a tree, which takes memory until its files are here, however slowly a VM
// sends them: files, and bytes of their names.
const (
	downloadPage  = 2 * contract.MaxBatchFiles
	downloadNames = 512 << 10
)

// What a folder and a file take of memory.Trees besides their names, with slack for lists that grow.
const (
	dirBytes  = 200
	fileBytes = 128
)

// errNoRoom: this list, and those of other transfers that go on, are too long together.
var errNoRoom = errors.New("its list of files is too long beside those of other transfers at this moment; try again when they have ended, or name a subfolder")

// take takes room for bytes of the list.
func (t *remoteTree) take(bytes int) error {
	if !memory.Trees.Take(int64(bytes)) {
		return errNoRoom
	}
	t.taken += int64(bytes)
	return nil
}

// free returns the room that the tree took.
func (t *remoteTree) free() {
	memory.Trees.Return(t.taken)
	*t = remoteTree{}
}

// folders returns the local names of all folders; the first one is the tree's own.
func (t *remoteTree) folders() []string {
	names := make([]string, len(t.dirs))
	for i, d := range t.dirs {
		names[i] = path.Join(t.top, d.name)
	}
	return names
}

// files returns all files, in the order of the list.
func (t *remoteTree) files() iter.Seq[remoteEntry] {
	return func(yield func(remoteEntry) bool) {
		for _, d := range t.dirs {
			for i := range d.files {
				if !yield(t.entry(d, &d.files[i])) {
					return
				}
			}
		}
	}
}

// pages returns all files, in pages. A page is valid until the next one.
func (t *remoteTree) pages() iter.Seq[[]remoteEntry] {
	return func(yield func([]remoteEntry) bool) {
		var page []remoteEntry
		names := 0
		for e := range t.files() {
			size := len(e.Path) + len(e.name)
			if names += size; len(page) == downloadPage || names > downloadNames && len(page) > 0 {
				if !yield(page) {
					return
				}
				page, names = page[:0], size
			}
			page = append(page, e)
		}
		if len(page) > 0 {
			yield(page)
		}
	}
}

func (t *remoteTree) entry(d *remoteDir, f *treeFile) remoteEntry {
	e := remoteEntry{File: f.File, name: path.Join(t.top, d.name, f.localName())}
	e.Path = contract.PathIn(d.path, f.Name)
	return e
}

func (f *treeFile) localName() string { return cmp.Or(f.local, f.Name) }

// listTree lists a remote folder and all its subfolders. local returns the local name for a remote
// one.
func (j *job) listTree(ctx context.Context, t *remoteTree, remote string, local func(string) string) error {
	type folder struct {
		*remoteDir
		depth int
	}
	for todo := []folder{{&remoteDir{path: remote, name: "."}, 0}}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		t.dirs = append(t.dirs, at.remoteDir)
		if err := j.listFolder(ctx, t, maxEntries-len(t.dirs)-t.count-len(todo)); err != nil {
			return err
		}
		if err := nameFiles(ctx, t, at.files, local); err != nil {
			return err
		}
		kept := at.files[:0]
		for _, f := range at.files {
			remote, name := contract.PathIn(at.path, f.Name), f.localName()
			switch {
			case j.leavesOut(name, f.IsDir):
				t.leftOut.add(remote)
			case f.Loop:
				t.notes = addNote(t.notes, plain.QuoteName(remote)+": skipped, because it links to a folder that contains it")
			case f.Special:
				t.notes = addNote(t.notes, plain.QuoteName(remote)+": skipped, because it is neither a file nor a folder")
			case f.IsDir && at.depth == maxDepth:
				t.notes = addNote(t.notes, fmt.Sprintf("%s: skipped, because it is %d folders deep", plain.QuoteName(remote), maxDepth))
			case f.IsDir:
				sub := &remoteDir{path: remote, name: path.Join(at.name, name)}
				if err := t.take(dirBytes + len(sub.path) + len(sub.name)); err != nil {
					return err
				}
				todo = append(todo, folder{sub, at.depth + 1})
				t.renamed.add(contract.File{Name: f.Name, Path: remote}, ".", sub.name)
			default:
				kept = append(kept, f)
				t.count, t.bytes = t.count+1, t.bytes+f.SizeBytes
			}
		}
		at.files = kept
	}
	return nil
}

// listFolder lists the last folder of t, or fails with ErrTooMany beyond limit.
func (j *job) listFolder(ctx context.Context, t *remoteTree, limit int) error {
	d := t.dirs[len(t.dirs)-1]
	for after := ""; ; {
		page, err := j.client.FilesAfter(ctx, d.path, after)
		if err != nil {
			return err
		}
		if len(t.dirs) == 1 {
			d.path = cmp.Or(page.Path, d.path) // the absolute path of what was typed
		}
		for _, f := range page.Files {
			if err := t.take(fileBytes + len(f.Name)); err != nil {
				return err
			}
			d.files = append(d.files, treeFile{File: f})
		}
		if len(d.files) > limit {
			return fmt.Errorf("%w: a folder and its subfolders have more than %d entries", ErrTooMany, maxEntries)
		}
		if !page.Truncated || len(page.Files) == 0 {
			return nil
		}
		after = page.Files[len(page.Files)-1].Name
	}
}

// manyNames is from how many names of a folder on they wait for the turn of large answers, because
// it takes several times their memory for a moment to tell them apart.
const manyNames = 2000

// nameFiles gives the entries of a folder their local names.
func nameFiles(ctx context.Context, t *remoteTree, files []treeFile, local func(string) string) error {
	if len(files) >= manyNames {
		done, err := memory.Decoding.Take(ctx)
		if err != nil {
			return err
		}
		defer done()
	}
	localNames(files, local, foldsCase)
	for i := range files {
		if err := t.take(len(files[i].local)); err != nil {
			return err
		}
	}
	return nil
}

// localNames gives each entry of a folder a name that no other entry has. A name that can be kept is
// kept. local returns the name that an entry gets unless another one has it. fold says that the
// local folder ignores case in names.
func localNames(entries []treeFile, local func(string) string, fold bool) {
	key := func(name string) string {
		if fold {
			return strings.ToLower(name)
		}
		return name
	}
	used := make(map[string]bool, len(entries))
	// The next number to try: counting from 1 each time would take an hour for 100,000
	// entries whose local names are equal.
	next := map[string]int{}
	var others []*treeFile
	for i := range entries {
		e := &entries[i]
		safe := local(e.Name)
		if contract.EscapeName(safe) != e.Name || used[key(safe)] {
			others = append(others, e)
			continue
		}
		if used[key(safe)] = true; safe != e.Name {
			e.local = safe
		}
	}
	for _, e := range others {
		for safe := local(e.Name); e.local == ""; next[key(safe)]++ {
			if name := filename.Numbered(safe, next[key(safe)]); !used[key(name)] {
				e.local, used[key(name)] = name, true
			}
		}
	}
}

// maxSameTree bounds a tree that is compared with a local folder, in bytes. A larger one is downloaded
// under a numbered name, because a comparison that outlasts a call starts again.
const maxSameTree = 1 << 30

// isSameTree reports whether a local folder that this download did not create has exactly
// the files and folders of a remote tree. The VM learns nothing about the folder: digests
// are compared here only. It fetches nothing if names or sizes differ.
func (j *job) isSameTree(ctx context.Context, root *os.Root, name string, remote *remoteTree) (bool, error) {
	folder, err := root.OpenRoot(name)
	if err != nil {
		return false, nil // a link that leads out, or no right to read it
	}
	defer folder.Close()
	local, err := walkLocal(ctx, folder)
	if err != nil || len(local.notes) > 0 || !sameShape(local, remote) {
		return false, contextError(ctx)
	}
	same := remote.bytes <= maxSameTree
	for page := range remote.pages() {
		if !same || err != nil {
			break
		}
		var large []remoteEntry
		err = j.compareAll(ctx, manifestOf(page), func(i int, answer contract.Compared) {
			if answer.SHA256 == "" && answer.State == contract.StateUnknown {
				large = append(large, page[i])
				return
			}
			at, err := findSame(ctx, folder, []string{page[i].name}, page[i].SizeBytes, answer.SHA256)
			same = same && err == nil && at != ""
		})
		for _, e := range large {
			if same && err == nil {
				same, err = j.sameLarge(ctx, folder, e)
			}
		}
	}
	return same && err == nil, cmp.Or(err, contextError(ctx))
}

// sameShape reports whether both trees have the same folders, and files of the same sizes. A
// local link is no file that a download makes.
func sameShape(local localTree, remote *remoteTree) bool {
	if len(local.files) != remote.count || len(local.folders) != len(remote.dirs) {
		return false
	}
	sizes, folders := make(map[string]int64, len(local.files)), make(map[string]bool, len(local.folders))
	for _, e := range local.files {
		if e.link {
			return false
		}
		sizes[e.name] = e.info.Size()
	}
	for _, folder := range local.folders {
		folders[folder] = true
	}
	for e := range remote.files() {
		if size, ok := sizes[e.name]; !ok || size != e.SizeBytes {
			return false
		}
	}
	for _, folder := range remote.folders() {
		if !folders[folder] {
			return false
		}
	}
	return true
}

// sameLarge compares a large file with a local one.
func (j *job) sameLarge(ctx context.Context, folder *os.Root, e remoteEntry) (bool, error) {
	st, err := j.client.Stat(ctx, e.Path, true, 0)
	if err != nil || st.ETag == "" || st.SizeBytes != e.SizeBytes {
		return false, err
	}
	sha, err := j.digestOf(ctx, e.Path, st)
	if errors.Is(err, errStale) {
		return false, nil
	}
	at := ""
	if err == nil {
		at, err = findSame(ctx, folder, []string{e.name}, e.SizeBytes, sha)
	}
	return at != "", err
}

// contextError returns why ctx ended, or nil if it did not.
func contextError(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
