package uploads

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
)

// BatchResult is the result for one file of a batch.
type BatchResult struct {
	Path string // where the file is
	ETag string
	Err  error
}

// Batch stores many small files. bytes contains the files of m one after the other. The
// rules of a single upload apply to each file, and a file that fails does not affect the
// others. The same batch again has the same results, even in a new executor, because a file
// that exists with the same content counts as committed. Batches are processed one at a
// time, because two copies of one batch would write the same files.
func (s *Store) Batch(ctx context.Context, m contract.Manifest, bytes []byte) ([]BatchResult, error) {
	if err := checkBatch(m, int64(len(bytes))); err != nil {
		return nil, err
	}
	select {
	case s.batches <- struct{}{}:
		defer func() { <-s.batches }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	b := &batch{roots: s.roots, leftovers: leftovers{path: filepath.Join(s.dir, leftoversFile)}, part: newBatchPartName()}
	defer b.close()
	out := make([]BatchResult, len(m.Files))
	for i, f := range m.Files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		body := bytes[:f.SizeBytes]
		bytes = bytes[f.SizeBytes:]
		start := contract.UploadStart{Path: m.Path + "/" + f.Name, SizeBytes: f.SizeBytes, Overwrite: m.Overwrite, Replaces: f.Replaces}
		if isMode(f) {
			out[i].Path, out[i].ETag, out[i].Err = s.roots.MakeExecutable(start.Path)
			continue
		}
		out[i].Path, out[i].ETag, out[i].Err = b.store(ctx, record{UploadStart: start, SHA256: f.SHA256}, body)
	}
	return out, nil
}

// isMode reports whether f is a file that is only to be made executable.
func isMode(f contract.ManifestFile) bool { return f.Executable && f.SHA256 == "" && f.SizeBytes == 0 }

// checkBatch checks an index against the number of bytes in the batch.
func checkBatch(m contract.Manifest, bytes int64) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("batch: %w: %s", ErrBadUpload, fmt.Sprintf(format, args...))
	}
	if len(m.Files) > contract.MaxBatchFiles {
		return refuse("%d files, at most %d", len(m.Files), contract.MaxBatchFiles)
	}
	for i, f := range m.Files {
		folder := strings.HasSuffix(f.Name, "/") && f.SizeBytes == 0 && f.SHA256 == ""
		switch {
		case f.Name == "":
			return refuse("file %d has no name", i)
		case f.SizeBytes < 0 || f.SizeBytes > contract.MaxBatchFile:
			return refuse("file %d has %d bytes, at most %d", i, f.SizeBytes, contract.MaxBatchFile)
		case !folder && !isMode(f) && !contract.SHA256Pattern().MatchString(f.SHA256):
			return refuse("file %d has no SHA-256", i)
		}
		if err := checkReplaces(f.Replaces, m.Overwrite); err != nil {
			return fmt.Errorf("batch: file %d: %w", i, err)
		}
		bytes -= f.SizeBytes
	}
	if bytes != 0 {
		return refuse("the sizes of its files do not add up to the bytes received")
	}
	return nil
}

// batch is a batch in work. Its files are written one at a time, to part files of one name.
type batch struct {
	roots     *files.Roots
	leftovers leftovers
	part      string

	folder string     // real path of the last file's folder
	dir    *files.Dir // the open folder, or nil
}

func (b *batch) close() {
	b.closeFolder()
	b.leftovers.clear()
}

func (b *batch) closeFolder() {
	if b.dir != nil {
		b.dir.Close()
		b.dir = nil
	}
}

// store stores one file, or creates a folder, and returns its path.
func (b *batch) store(ctx context.Context, rec record, body []byte) (path, etag string, err error) {
	if strings.HasSuffix(rec.Path, "/") {
		path, err = b.roots.MakeFolder(rec.Path)
		return path, "", err
	}
	abs, err := b.roots.Absolute(rec.Path)
	if err != nil {
		return "", "", err
	}
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != rec.SHA256 {
		return "", "", ErrDigest
	}
	t, err := b.roots.Target(rec.Path)
	if err == nil {
		err = b.openFolder(t)
	}
	if err != nil {
		return "", "", err
	}
	rec.Folder, rec.Name, rec.Linked = []byte(t.Folder()), []byte(t.Name), t.Linked
	p := placement{
		part: b.part, dir: b.dir, record: rec,
		save: func(record) error { return nil }, // no journal: if the batch is sent again, the file is recognised by its content
	}
	if err := p.store(ctx, body); err != nil {
		return "", "", err
	}
	return contract.EscapeName(abs), p.record.ETag, nil
}

// openFolder opens the folder of t, and records that a part file may be left in it.
func (b *batch) openFolder(t files.Target) error {
	if b.dir != nil && b.folder == t.Folder() {
		return nil
	}
	b.closeFolder()
	dir, err := t.OpenOrMake()
	if err != nil {
		return err
	}
	b.leftovers.add(t.Folder(), b.part)
	b.folder, b.dir = t.Folder(), dir
	return nil
}

// store writes body to a part file and gives it its name. It does nothing if the file to be
// replaced has the same content, as in a batch that is sent again.
func (p *placement) store(ctx context.Context, body []byte) error {
	name := string(p.record.Name)
	if existing, err := p.dir.Lstat(name); err == nil {
		if same, err := p.same(ctx, name, existing); same || err != nil {
			p.record.Placing = p.record.Name
			return err
		}
	}
	write := func(f *os.File) error {
		_, err := f.Write(body)
		return err
	}
	if err := newPart(p.dir, p.part, write); err != nil {
		return err
	}
	f, err := openPart(p.dir, p.part, p.record.SizeBytes, os.O_RDONLY)
	if errors.Is(err, files.ErrNotFound) {
		return files.ErrChanged
	}
	if err == nil {
		p.file = f
		p.record, err = p.run(ctx)
		f.Close()
	}
	if err != nil {
		_ = p.dir.Remove(p.part)
	}
	return err
}
