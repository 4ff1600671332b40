package render

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// original is the decoded payload of a display, which may be larger than what a process may
// hold: a file, or a few bytes in memory.
type original struct {
	path   string // where it is saved; empty if it is not
	read   string // the file that has it, if it is not in memory
	memory []byte
	pixels string // see File
}

// shrink returns it as a picture for a model.
func (o *original) shrink(ctx context.Context) (Picture, error) {
	if o.memory != nil {
		return Shrink(ctx, bytes.NewReader(o.memory))
	}
	f, err := os.Open(o.read)
	if err != nil {
		return Picture{}, err
	}
	defer f.Close()
	return Shrink(ctx, f)
}

// discard removes a file that is not saved.
func (o *original) discard() {
	if o.path == "" && o.read != "" {
		os.Remove(o.read)
	}
}

// original saves a payload. A file has its digest in its name, so a state that was saved before
// is neither fetched nor written again, and none replaces another one. A payload that cannot be
// saved is kept nevertheless if it is to be shown.
func (p *presenter) original(ctx context.Context, d *display, mime string, show bool) (*original, error) {
	raw := d.data[mime]
	kind := "output"
	switch {
	case d.typ == contract.EventError:
		kind = "traceback"
	case strings.HasPrefix(mime, "image/"):
		kind = "picture"
	}
	blob, isBlob := blobOf(raw)
	if isBlob && contract.SHA256Pattern.MatchString(blob.SHA256) {
		path := p.pathOf(d, mime, blob.SHA256)
		if info, err := os.Lstat(path); p.dir != "" && err == nil && info.Mode().IsRegular() && info.Size() == blob.Bytes {
			return p.saved(kind, path), nil
		}
	}
	if isBlob {
		return p.spooled(ctx, d, mime, kind, show)
	}
	var b bytes.Buffer // an event is small
	if err := p.payload(ctx, mime, raw, &b); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b.Bytes())
	path := p.pathOf(d, mime, hex.EncodeToString(sum[:]))
	if info, err := os.Lstat(path); p.dir != "" && err == nil && info.Size() == int64(b.Len()) {
		return p.saved(kind, path), nil
	}
	err := p.room(int64(b.Len()))
	if err == nil {
		path, err = SaveFile(p.dir, filepath.Base(path), func(w io.Writer) error {
			_, err := w.Write(b.Bytes())
			return err
		})
	}
	if err != nil {
		p.view.saved(kind, "", err)
		return &original{memory: b.Bytes()}, nil
	}
	return p.saved(kind, path), nil
}

// spooled fetches a blob into a file.
func (p *presenter) spooled(ctx context.Context, d *display, mime, kind string, show bool) (*original, error) {
	raw := d.data[mime]
	unsaved := p.room(PayloadBytes(raw))
	if unsaved != nil && !show {
		p.view.saved(kind, "", unsaved)
		return &original{}, nil
	}
	file, err := p.temporary(&unsaved)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	if err := p.payload(ctx, mime, raw, io.MultiWriter(file, sum)); err != nil {
		discard(file)
		return nil, err
	}
	if unsaved == nil {
		path, err := commit(file, p.pathOf(d, mime, hex.EncodeToString(sum.Sum(nil))))
		if err == nil {
			return p.saved(kind, path), nil
		}
		unsaved = err
		p.view.saved(kind, "", err)
		return nil, err
	}
	p.view.saved(kind, "", unsaved)
	if err := file.Close(); err != nil {
		return nil, err
	}
	return &original{read: file.Name()}, nil
}

// temporary opens a file for a payload in the folder of the execution, or else in that for
// temporary files of the system.
func (p *presenter) temporary(unsaved *error) (*os.File, error) {
	if *unsaved == nil {
		file, err := createIn(p.dir, "output")
		if err == nil {
			return file, nil
		}
		*unsaved = err
	}
	return os.CreateTemp("", "colab-relay-*"+temporary)
}

// room makes room for a file in the folder.
func (p *presenter) room(bytes int64) error {
	if p.dir == "" {
		return errNoFolder
	}
	return Room(p.dir, bytes, p.used...)
}

func (p *presenter) pathOf(d *display, mime, sum string) string {
	return filepath.Join(p.dir, fmt.Sprintf("%s%d-%s%s", outputPrefix, d.offset, sum[:16], Extension(mime)))
}

// saved notes a file that has a payload.
func (p *presenter) saved(kind, path string) *original {
	path = filepath.Clean(path)
	p.used = append(p.used, path)
	file := File{Kind: kind, Path: path}
	if f, err := bounded.Open(path); kind == "picture" && err == nil {
		file.Pixels = Pixels(f)
		f.Close()
	}
	p.view.Files = append(p.view.Files, file)
	return &original{path: path, read: path, pixels: file.Pixels}
}
