package render

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"colabrelay/relay/output"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// Executions is the folder of saved output below the one for saved files.
const Executions = "executions"

// Folder returns the folder for the output of an execution below the one for saved output. It
// is named by instance and id, because an id is unique on its instance only.
func Folder(saveDir, instance, id string) string {
	sum := sha256.Sum256([]byte(instance + "\x00" + id))
	return filepath.Join(saveDir, Executions, fmt.Sprintf("%s-%.6x", filename.ID(id), sum))
}

var errNoFolder = errors.New("no folder to save in")

// temporary is the end of the names of temporary files.
const temporary = ".part"

// createIn opens a temporary file in dir, which is created when missing.
func createIn(dir, name string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return os.CreateTemp(dir, "."+name+".*"+temporary)
}

// filled fills a new file, closes it, and gives it the path that name returns. After an error it
// does not exist.
func filled(file *os.File, fill func(io.Writer) error, name func() string) (path string, err error) {
	err = cmp.Or(fill(file), file.Close())
	if err == nil {
		path = name()
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
		return "", err
	}
	return path, nil
}

// SaveFile creates dir/name with what fill writes, completely or not at all.
func SaveFile(dir, name string, fill func(io.Writer) error) (string, error) {
	file, err := createIn(dir, name)
	if err != nil {
		return "", err
	}
	return filled(file, fill, func() string { return filepath.Join(dir, name) })
}

// nameOf returns the name of a file with output of the event at offset, by its digest.
func nameOf(kind string, offset int64, sum, extension string) string {
	return fmt.Sprintf("%s-%d-%.16s%s", kind, offset, sum, extension)
}

// store saves what fill writes, of about so many bytes, in a file that is named after its content,
// so it replaces no other one.
func store(dir, kind string, offset int64, extension string, bytes int64, fill func(io.Writer) error, used ...string) (string, error) {
	if err := Room(dir, bytes, used...); err != nil {
		return "", err
	}
	file, err := createIn(dir, kind)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	return filled(file, func(w io.Writer) error { return fill(io.MultiWriter(w, sum)) }, func() string {
		return filepath.Join(dir, nameOf(kind, offset, hex.EncodeToString(sum.Sum(nil)), extension))
	})
}

// SavePayload saves a payload of the event at offset, which fill writes, in the folder of its
// execution. One that was saved before is neither fetched nor written again. It keeps the files that
// used names.
func SavePayload(dir string, offset int64, mime string, raw json.RawMessage, fill func(io.Writer) error, used ...string) (path string, err error) {
	blob, isBlob := output.BlobOf(raw)
	if isBlob && dir != "" && contract.SHA256Pattern().MatchString(blob.SHA256) {
		path := filepath.Join(dir, nameOf(payloadKind, offset, blob.SHA256, output.Extension(mime)))
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() == blob.Bytes {
			return path, nil
		}
	}
	return store(dir, payloadKind, offset, output.Extension(mime), max(0, output.PayloadBytes(raw)), fill, used...)
}

// original is the payload of a display, which may be larger than what a process may hold: in a file,
// or in its event.
type original struct {
	path   string // where it is saved; empty if it is not
	file   string // that has it until the view is made
	inline []byte
	pixels string // see File
}

// shrink returns it as a picture for a model.
func (o *original) shrink(ctx context.Context) (Picture, error) {
	if o.inline != nil {
		return Shrink(ctx, bytes.NewReader(o.inline))
	}
	f, err := os.Open(cmp.Or(o.path, o.file))
	if err != nil {
		return Picture{}, err
	}
	defer f.Close()
	return Shrink(ctx, f)
}

// discard removes a file that is not saved.
func (o *original) discard() {
	if o.file != "" {
		os.Remove(o.file)
	}
}

// original saves a payload. One that cannot be saved is kept nevertheless if it is to be shown.
func (p *presenter) original(ctx context.Context, d *display, mime string, show bool) (*original, error) {
	kind, raw := "output", d.data[mime]
	switch {
	case d.typ == contract.EventError:
		kind = "traceback"
	case strings.HasPrefix(mime, "image/"):
		kind = "picture"
	}
	o, read := original{}, error(nil)
	fill := func(w io.Writer) error {
		read = p.payload(ctx, mime, raw, w)
		return read
	}
	path, err := SavePayload(p.opt.Dir, d.offset, mime, raw, fill, p.used...)
	switch _, isBlob := output.BlobOf(raw); {
	case err == nil:
		o.path, o.pixels = path, p.savedAs(kind, path)
		return &o, nil
	case read != nil:
		return nil, read
	case !isBlob && show:
		if o.inline, read = io.ReadAll(output.Decoded(mime, raw)); read != nil {
			return nil, read
		}
	case show:
		file, err := os.CreateTemp("", "colab-relay-*"+temporary)
		if err != nil {
			return nil, err
		}
		if o.file, err = filled(file, fill, file.Name); err != nil {
			return nil, err
		}
	}
	p.view.saved(kind, "", err)
	return &o, nil
}

// savedAs notes a file that has a payload, and returns the size of a picture.
func (p *presenter) savedAs(kind, path string) (pixels string) {
	path = filepath.Clean(path)
	p.used = append(p.used, path)
	if f, err := bounded.Open(path); kind == "picture" && err == nil {
		pixels = Pixels(f)
		f.Close()
	}
	p.view.Files = append(p.view.Files, File{Kind: kind, Path: path, Pixels: pixels})
	return pixels
}
