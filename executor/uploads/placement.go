package uploads

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
	"colabrelay/shared/partfile"
)

// placement gives a complete part file its name in dir.
type placement struct {
	record
	part string // the part file's name in dir
	dir  *files.Dir
	file *os.File // the open part file
	sum  string   // its digest

	digests *files.Digests
}

// run returns the etag of the file that has the name then: the part file, or one that had the same
// content already.
func (p *placement) run(ctx context.Context) (etag string, err error) {
	name, path := string(p.Name), filepath.Join(string(p.Folder), string(p.Name))
	etag, err = p.try(ctx, name)
	switch {
	case err == nil && etag == "":
		var v files.Version
		v, err = files.VersionOf(p.file)
		return v.ETag, err
	case errors.Is(err, ErrTaken) && p.Linked && p.mayReplace():
		err = fmt.Errorf("%w, because a link is in the path", err)
	}
	if err != nil {
		return "", fmt.Errorf("%q: %w", path, err)
	}
	return etag, nil
}

// mayReplace reports whether the upload names a file that it may replace.
func (p *placement) mayReplace() bool {
	return p.Replaces != "" && p.Replaces != contract.ReplaceNothing
}

// try gives the part file a name, unless another file that it may not replace has it. It returns
// the etag of a file with the same content that has the name already.
func (p *placement) try(ctx context.Context, name string) (etag string, err error) {
	part, err := p.file.Stat()
	if err != nil {
		return "", err
	}
	existing, err := p.dir.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && p.Overwrite:
		return "", p.rename(name)
	case errors.Is(err, fs.ErrNotExist):
		err := partfile.Place(p.dir, p.part, name)
		if errors.Is(err, fs.ErrExist) {
			return "", ErrTaken
		}
		return "", files.WriteError(err)
	case err != nil:
		return "", files.Classify(err)
	case os.SameFile(existing, part): // a kill left both names
		return "", files.WriteError(p.dir.Remove(p.part))
	case p.Overwrite && existing.IsDir():
		return "", files.ErrIsDir
	case p.Overwrite && !existing.Mode().IsRegular():
		return "", files.ErrNotRegular
	case p.Overwrite:
		_ = p.file.Chmod(existing.Mode().Perm()) // fails on file systems without modes, such as Drive
		return "", p.rename(name)
	}
	sum, etag, err := p.inspect(ctx, name, existing)
	switch {
	case err != nil:
		return "", err
	case sum != "" && sum == p.sum:
		return etag, files.WriteError(p.dir.Remove(p.part))
	case sum != "" && sum == p.Replaces && !p.Linked:
		return "", p.replaceUnchanged(name, etag)
	}
	return "", ErrTaken
}

func (p *placement) rename(name string) error { return files.WriteError(p.dir.Rename(p.part, name)) }

// replaceUnchanged replaces a file that the upload may replace, unless it changed since it had the
// etag, when it was hashed. Nothing is read between this look and the rename, so only a change
// within these microseconds can be lost.
func (p *placement) replaceUnchanged(name, etag string) error {
	now, err := p.dir.Lstat(name)
	if err != nil || files.ETagOf(now) != etag {
		return ErrTaken
	}
	_ = p.file.Chmod(now.Mode().Perm())
	return p.rename(name)
}

// inspect hashes an existing file if it may have the uploaded content, or be the one that
// the upload replaces. Without a digest it is neither.
func (p *placement) inspect(ctx context.Context, name string, existing fs.FileInfo) (sum, etag string, err error) {
	if !existing.Mode().IsRegular() || existing.Size() != p.SizeBytes && !p.mayReplace() {
		return "", "", nil
	}
	f, err := files.OpenRegular(p.dir, name, os.O_RDONLY)
	if err != nil {
		return "", "", nil // it can't be read or was deleted, so it does not count
	}
	defer f.Close()
	sum, etag, err = p.digests.Of(ctx, f, filepath.Join(string(p.Folder), name))
	if errors.Is(err, files.ErrChanged) {
		return "", "", nil
	}
	return sum, etag, err
}
