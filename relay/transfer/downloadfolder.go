package transfer

import (
	"context"
	"os"

	"colabrelay/relay/plain"
)

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
