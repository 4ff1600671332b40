package transfer

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"

	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// remoteEntry is a file or folder of a remote tree and its local name.
type remoteEntry struct {
	contract.File
	name string // in the root, with slashes
	part string
}

// remoteTree is the content of a remote folder, with all its subfolders.
type remoteTree struct {
	folders []string // local names; the first one is the folder itself
	files   []remoteEntry
	bytes   int64
	notes   []string
	renamed renames // of the folders
}

// remoteFolder is a remote folder and the mark that its local copy gets.
type remoteFolder struct {
	path string
	from origin
}

// downloadFolder lists a whole tree, then downloads its files.
func (j *job) downloadFolder(ctx context.Context, root *os.Root, remote remoteFolder, name string) (Result, error) {
	name, unlock, err := j.claimFolder(root, name, remote.from)
	r := Result{Path: absolute(root, name), IsDir: true}
	if err != nil {
		return r, err
	}
	defer unlock()
	doing := fmt.Sprintf("downloading %q", remote.path)
	tree, err := j.listTree(ctx, remote.path, name, newNamer(root).name)
	if err != nil {
		return r, j.annotate(ctx, doing, err)
	}
	if err := remote.from.save(root, name); err != nil {
		return r, err
	}
	if err := makeTree(root, tree.folders); err != nil {
		return r, err
	}
	completed, err := openCompletedFiles(root, name, remote.path)
	if err != nil {
		return r, err
	}
	j.meter.plan(len(tree.files), tree.bytes)
	r.Files, r.SizeBytes, r.Notes = len(tree.files), tree.bytes, tree.notes
	f := &folderDownload{job: j, root: root, top: name, completed: completed, tally: &tally{r: &r, renamed: tree.renamed}}
	err = f.tally.outcome(ctx, f.fetchAll(ctx, tree.files))
	r.MovedBytes = j.meter.moved.Load()
	return r, j.annotate(ctx, doing, completed.close(root, err))
}

// listTree lists a remote folder and all its subfolders. local returns the local name for
// a remote one.
func (j *job) listTree(ctx context.Context, remote, name string, local func(string) string) (remoteTree, error) {
	t := remoteTree{}
	type folder struct {
		path, name string
		depth      int
	}
	for todo := []folder{{path: remote, name: name}}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		t.folders = append(t.folders, at.name)
		entries, err := j.listFolder(ctx, at.path, maxEntries-len(t.folders)-len(t.files)-len(todo))
		if err != nil {
			return t, err
		}
		names := localNames(entries, local, foldsCase)
		for i, e := range entries {
			e := remoteEntry{File: e, name: path.Join(at.name, names[i].name), part: path.Join(at.name, names[i].part)}
			switch {
			case e.Loop:
				t.notes = addNote(t.notes, fmt.Sprintf("%q: skipped, because it links to a folder that contains it", e.Path))
			case e.Special:
				t.notes = addNote(t.notes, fmt.Sprintf("%q: skipped, because it is neither a file nor a folder", e.Path))
			case e.IsDir && at.depth == maxDepth:
				t.notes = addNote(t.notes, fmt.Sprintf("%q: skipped, because it is %d folders deep", e.Path, maxDepth))
			case e.IsDir:
				todo = append(todo, folder{e.Path, e.name, at.depth + 1})
				t.renamed.add(e.File, name, e.name)
			default:
				t.files, t.bytes = append(t.files, e), t.bytes+e.SizeBytes
			}
		}
	}
	return t, nil
}

// listFolder returns all entries of one remote folder, or ErrTooMany beyond limit.
func (j *job) listFolder(ctx context.Context, remote string, limit int) ([]contract.File, error) {
	var all []contract.File
	for after := ""; ; {
		page, err := j.client.FilesAfter(ctx, remote, after)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Files...)
		if len(all) > limit {
			return nil, fmt.Errorf("%w: a folder and its subfolders have more than %d entries", ErrTooMany, maxEntries)
		}
		if !page.Truncated || len(page.Files) == 0 {
			return all, nil
		}
		after = page.Files[len(page.Files)-1].Name
	}
}

// entryName holds the local names of an entry and its part file.
type entryName struct{ name, part string }

// localNames gives each entry of a folder a name and a part name that no other entry has.
// A name that can be kept is kept. local returns the name that an entry gets unless
// another one has it. fold says that the local folder ignores case in names.
func localNames(entries []contract.File, local func(string) string, fold bool) []entryName {
	key := func(name string) string {
		if fold {
			return strings.ToLower(name)
		}
		return name
	}
	out := make([]entryName, len(entries))
	used := make(map[string]bool, len(entries))
	// The next number to try: counting from 1 each time would take an hour for 100,000
	// entries whose local names are equal.
	next := map[string]int{}
	for i, e := range entries {
		if safe := local(e.Name); contract.EscapeName(safe) == e.Name && !used[key(safe)] {
			out[i].name, used[key(safe)] = safe, true
		}
	}
	for i, e := range entries {
		for safe := local(e.Name); out[i].name == ""; next[key(safe)]++ {
			if name := filename.Numbered(safe, next[key(safe)]); !used[key(name)] {
				out[i].name, used[key(name)] = name, true
			}
		}
	}
	for i := range out {
		out[i].part = partName(out[i].name)
		for n := 1; used[key(out[i].part)] || used[key(out[i].part+journalSuffix)]; n++ {
			out[i].part = filename.Numbered(partName(out[i].name), n)
		}
		used[key(out[i].part)], used[key(out[i].part+journalSuffix)] = true, true
	}
	return out
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
