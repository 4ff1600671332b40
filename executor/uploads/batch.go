package uploads

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
)

// Batch stores many small files. bytes contains the files of m one after the other. The
// rules of a single upload apply to each file, and a file that fails does not affect the
// others. The same batch again has the same results, even in a new executor, because a file
// that exists with the same content counts as committed. Batches are processed one at a
// time, because two copies of one batch would write the same files. explain returns the error of a file.
func (s *Store) Batch(ctx context.Context, m contract.Manifest, bytes []byte, explain func(error) *contract.Error) ([]contract.BatchedFile, error) {
	if err := checkBatch(m, int64(len(bytes))); err != nil {
		return nil, err
	}
	select {
	case s.batches <- struct{}{}:
		defer func() { <-s.batches }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	id := newUploadID()
	b := &batch{s.newUpload(id, contract.UploadStart{Path: m.Path, Version: id}), nil}
	defer b.close()
	out := make([]contract.BatchedFile, len(m.Files))
	for i, f := range m.Files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		body := bytes[:f.SizeBytes]
		bytes = bytes[f.SizeBytes:]
		start := contract.UploadStart{Path: m.Path + "/" + f.Name, SizeBytes: f.SizeBytes, Overwrite: m.Overwrite, Replaces: f.Replaces}
		var err error
		if isMode(f) {
			out[i].Path, out[i].ETag, err = s.roots.MakeExecutable(start.Path)
		} else {
			out[i].Path, out[i].ETag, err = b.store(ctx, start, f.SHA256, body)
		}
		if err != nil {
			out[i] = contract.BatchedFile{Error: explain(err)}
		}
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

// batch is a batch in work. Its files are written one at a time, to part files of one name. The record
// of its upload says in which folder a killed executor may have left one.
type batch struct {
	*upload
	dir *files.Dir // the open folder, or nil
}

func (b *batch) close() {
	if b.dir != nil {
		b.dir.Close()
		_ = os.Remove(b.upload.path)
	}
}

// store stores one file, or creates a folder, and returns its path.
func (b *batch) store(ctx context.Context, start contract.UploadStart, sum string, body []byte) (path, etag string, err error) {
	if strings.HasSuffix(start.Path, "/") {
		path, err = b.roots.MakeFolder(start.Path)
		return path, "", err
	}
	abs, err := b.roots.Absolute(start.Path)
	if err != nil {
		return "", "", err
	}
	if got := sha256.Sum256(body); hex.EncodeToString(got[:]) != sum {
		return "", "", ErrDigest
	}
	t, err := b.roots.Target(start.Path)
	if err == nil {
		err = b.openFolder(t)
	}
	if err != nil {
		return "", "", err
	}
	p := placement{
		record: record{UploadStart: start, Folder: b.record.Folder, Name: []byte(t.Name), Linked: t.Linked},
		part:   b.part, dir: b.dir, sum: sum, digests: b.digests,
	}
	etag, err = p.store(ctx, body)
	return contract.EscapeName(abs), etag, err
}

// openFolder opens the folder of t.
func (b *batch) openFolder(t files.Target) error {
	if b.dir != nil && string(b.record.Folder) == t.Folder() {
		return nil
	}
	dir, err := t.OpenOrMake()
	if err != nil {
		return err
	}
	if b.dir != nil {
		b.dir.Close()
	}
	b.dir, b.record = dir, record{UploadStart: b.spec, Folder: []byte(t.Folder()), Name: []byte(t.Name), Batch: true}
	_ = b.save(nil) // without it, a hidden file may stay after a kill
	return nil
}

// store writes body to a part file and gives it its name. It does nothing if a file with the same
// content has the name, as in a batch that is sent again.
func (p *placement) store(ctx context.Context, body []byte) (etag string, err error) {
	if existing, err := p.dir.Lstat(string(p.Name)); err == nil && existing.Size() == p.SizeBytes {
		if sum, etag, err := p.inspect(ctx, string(p.Name), existing); err != nil || sum == p.sum {
			return etag, err
		}
	}
	write := func(f *os.File) error {
		_, err := f.Write(body)
		return err
	}
	if err := newPart(p.dir, p.part, write); err != nil {
		return "", err
	}
	f, _, err := openPart(p.dir, p.part, p.SizeBytes, os.O_RDONLY)
	if errors.Is(err, ErrNoUpload) {
		return "", files.ErrChanged
	}
	if err == nil {
		p.file = f
		etag, err = p.run(ctx)
		f.Close()
	}
	if err != nil {
		_ = p.dir.Remove(p.part)
	}
	return etag, err
}
