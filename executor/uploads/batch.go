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

// BatchResult is what became of one file of a batch.
type BatchResult struct {
	Path string // where it is
	ETag string
	Err  error
}

// Batch takes many small files in at once: bytes holds those of m.Files, one after the
// other. Each is put in its place by the rules of a single upload, and fails alone. The
// same batch again gives the same answer, in a new executor too, because a file that is
// in its place already counts as committed. One batch is worked on at a time: two
// copies of the same one would write the same files.
func (u *Store) Batch(ctx context.Context, m contract.Manifest, bytes []byte) ([]BatchResult, error) {
	if err := checkBatch(m, int64(len(bytes))); err != nil {
		return nil, err
	}
	select {
	case u.batches <- struct{}{}:
		defer func() { <-u.batches }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	b := &batch{roots: u.roots, leftovers: leftovers{path: filepath.Join(u.dir, leftoversFile)}, part: newBatchPartName()}
	defer b.close()
	out := make([]BatchResult, len(m.Files))
	for i, f := range m.Files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		body := bytes[:f.SizeBytes]
		bytes = bytes[f.SizeBytes:]
		spec := contract.UploadStart{Path: m.Path + "/" + f.Name, SizeBytes: f.SizeBytes, SHA256: f.SHA256, Overwrite: m.Overwrite}
		out[i].Path, out[i].ETag, out[i].Err = b.take(ctx, spec, body)
	}
	return out, nil
}

// checkBatch holds a batch of so many bytes against its index.
func checkBatch(m contract.Manifest, bytes int64) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("batch: %w: %s", ErrBadUpload, fmt.Sprintf(format, args...))
	}
	if len(m.Files) > contract.MaxBatchFiles {
		return refuse("%d files; %d are the most", len(m.Files), contract.MaxBatchFiles)
	}
	for i, f := range m.Files {
		folder := strings.HasSuffix(f.Name, "/") && f.SizeBytes == 0 && f.SHA256 == ""
		switch {
		case f.Name == "":
			return refuse("file %d has no name", i)
		case f.SizeBytes < 0 || f.SizeBytes > contract.MaxBatchFile:
			return refuse("file %d has %d bytes; %d are the most", i, f.SizeBytes, contract.MaxBatchFile)
		case !folder && !isDigest.MatchString(f.SHA256):
			return refuse("file %d has no SHA-256", i)
		}
		bytes -= f.SizeBytes
	}
	if bytes != 0 {
		return refuse("its files' sizes do not add up to the bytes sent")
	}
	return nil
}

// batch is one being worked on. Its files use one part after the other, all of one name.
type batch struct {
	roots     *files.Roots
	leftovers leftovers
	part      string

	folder string   // the real path of the last file's
	dir    *os.Root // open, or nil
}

func (b *batch) close() {
	b.leave()
	b.leftovers.clear()
}

func (b *batch) leave() {
	if b.dir != nil {
		b.dir.Close()
		b.dir = nil
	}
}

// take puts one file, or folder, in its place and says where that is.
func (b *batch) take(ctx context.Context, spec contract.UploadStart, body []byte) (path, etag string, err error) {
	if strings.HasSuffix(spec.Path, "/") {
		path, err = b.roots.MakeFolder(spec.Path)
		return path, "", err
	}
	abs, err := b.roots.Absolute(spec.Path)
	if err != nil {
		return "", "", err
	}
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != spec.SHA256 {
		return "", "", ErrDigest
	}
	t, err := b.roots.Target(spec.Path)
	if err == nil {
		err = b.enter(t)
	}
	if err != nil {
		return "", "", err
	}
	p := placement{
		spec: spec, part: b.part, dir: b.dir,
		record: record{UploadStart: spec, Folder: []byte(t.Folder()), Name: []byte(t.Name)},
		note:   func(record) error { return nil }, // the same batch again finds the file by its content
	}
	if err := p.place(ctx, body); err != nil {
		return "", "", err
	}
	return p.record.shown(abs), p.record.ETag, nil
}

// enter opens the folder of t, and notes that a part may be left in it.
func (b *batch) enter(t files.Target) error {
	if b.dir != nil && b.folder == t.Folder() {
		return nil
	}
	b.leave()
	dir, err := t.OpenOrMake()
	if err != nil {
		return err
	}
	b.leftovers.add(t.Folder(), b.part)
	b.folder, b.dir = t.Folder(), dir
	return nil
}

// place writes the part and gives it its name, unless the file to be replaced is the
// same: a batch that is sent again leaves that as it is.
func (p *placement) place(ctx context.Context, body []byte) error {
	name := string(p.record.Name)
	if there, err := p.dir.Lstat(name); err == nil && p.spec.Overwrite {
		if same, err := p.same(ctx, name, there); same || err != nil {
			p.record.Placing = p.record.Name
			return err
		}
	}
	if err := writePart(p.dir, p.part, body); err != nil {
		return err
	}
	f, err := openPart(p.dir, p.part, p.spec.SizeBytes, os.O_RDONLY)
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
