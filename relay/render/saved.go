package render

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"colabrelay/relay/output"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/diskspace"
	"colabrelay/shared/lazy"
)

// Bounds of what is saved below the folder of all executions.
const (
	// maxHeld is how much text of a stream waits in memory. What is shorter than an answer is never
	// saved.
	maxHeld = 256 << 10
	// maxStream bounds the saved text of a stream. An executor keeps no longer log, and an
	// execution that never ends would fill the laptop's disk.
	maxStream = 256 << 20
	// maxKept bounds all executions together: displays that are updated have a new file for each
	// state that is shown, so one run could fill a disk.
	maxKept = 4 << 30
	// leastFree is how much of a disk stays free, at most a twentieth of it. Nothing is saved
	// beyond that.
	leastFree = 1 << 30
	// fileCost is the least that a file counts.
	fileCost = 4 << 10
)

// keeping are the bounds, which are smaller in tests.
type keeping struct {
	all   int64
	space func(dir string) (diskspace.Space, bool)

	mu   sync.Mutex
	left map[string]int64 // bytes to save below a folder until it is looked through again
}

var usual = &keeping{all: maxKept, space: diskspace.Of}

// room makes the folder of an execution, and room in it for a file of so many bytes: it removes
// what was saved longest ago, for whatever execution. It fails if the disk is nearly full.
func (k *keeping) room(dir string, bytes int64) error {
	if dir == "" {
		return errNoFolder
	}
	k.trim(filepath.Dir(dir), max(bytes, fileCost))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if space, known := k.space(dir); known && space.Free-bytes < min(leastFree, space.Size/20) {
		return fmt.Errorf("the disk is nearly full: %d MiB are free, and the relay leaves %d MiB", space.Free>>20, min(leastFree, space.Size/20)>>20)
	}
	return nil
}

// trim removes the oldest files of the executions below root until so many bytes fit. It looks
// through them only once in a while.
func (k *keeping) trim(root string, bytes int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if left, known := k.left[root]; known && left >= bytes {
		k.left[root] -= bytes
		return
	}
	files, total := keptBelow(root), bytes
	for _, f := range files {
		total += f.bytes
	}
	slices.SortFunc(files, func(a, b kept) int { return cmp.Or(a.changed.Compare(b.changed), cmp.Compare(a.path, b.path)) })
	for _, f := range files {
		if total > k.all && os.Remove(f.path) == nil {
			total -= f.bytes
			_ = os.Remove(filepath.Dir(f.path)) // intended to fail while the folder has other files
		}
	}
	if k.left == nil {
		k.left = map[string]int64{}
	}
	k.left[root] = max(0, (k.all-total)/2)
}

// payloadKind begins the names of files that have the payload of a display.
const payloadKind = "output"

// kept is a file that the relay saved.
type kept struct {
	path    string
	bytes   int64
	changed time.Time
}

// ours matches the names of the files that the relay saves for an execution.
var ours = lazy.Regexp(`^((output|result|traceback|stdout|stderr)-.*|\..*\.part)$`)

// keptBelow returns the relay's files in the folders of executions.
func keptBelow(root string) (files []kept) {
	folders, _ := os.ReadDir(root) // what cannot be read has nothing to remove
	for _, folder := range folders {
		entries, _ := os.ReadDir(filepath.Join(root, folder.Name()))
		for _, e := range entries {
			info, err := e.Info()
			if err == nil && info.Mode().IsRegular() && ours().MatchString(e.Name()) {
				files = append(files, kept{filepath.Join(root, folder.Name(), e.Name()), max(info.Size(), fileCost), info.ModTime()})
			}
		}
	}
	return files
}

var errNoFolder = errors.New("no folder to save in")

// newFile is a file that gets its name when it is complete: that of its content, so it replaces no
// other one.
type newFile struct {
	*os.File
	sum hash.Hash
}

// create makes a file in dir that is to have about so many bytes.
func create(dir string, bytes int64) (*newFile, error) {
	if err := usual.room(dir, bytes); err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(dir, ".*.part")
	if err != nil {
		return nil, err
	}
	return &newFile{file, sha256.New()}, nil
}

// Write implements io.Writer.
func (f *newFile) Write(b []byte) (int, error) {
	_, _ = f.sum.Write(b)
	return f.File.Write(b)
}

// done closes the file and names it, unless err is the reason why it is not complete: then it is
// removed.
func (f *newFile) done(kind string, offset int64, extension string, err error) (path string, _ error) {
	if err = cmp.Or(err, f.Close()); err == nil {
		path = filepath.Join(filepath.Dir(f.Name()), nameOf(kind, offset, hex.EncodeToString(f.sum.Sum(nil)), extension))
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return path, nil
}

// nameOf returns the name of a file with output of the event at offset, by its digest.
func nameOf(kind string, offset int64, sum, extension string) string {
	return fmt.Sprintf("%s-%d-%.16s%s", kind, offset, sum, extension)
}

// store saves what fill writes, of about so many bytes.
func store(dir, kind string, offset int64, extension string, bytes int64, fill func(io.Writer) error) (string, error) {
	file, err := create(dir, bytes)
	if err != nil {
		return "", err
	}
	return file.done(kind, offset, extension, fill(file))
}

// SavePayload saves a payload of the event at offset, which fill writes, in the folder of its
// execution. One that was saved before is neither fetched nor written again.
func SavePayload(dir string, offset int64, mime string, raw json.RawMessage, fill func(io.Writer) error) (path string, err error) {
	blob, isBlob := output.BlobOf(raw)
	if isBlob && dir != "" && contract.SHA256Pattern().MatchString(blob.SHA256) {
		path := filepath.Join(dir, nameOf(payloadKind, offset, blob.SHA256, output.Extension(mime)))
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() == blob.Bytes {
			_ = os.Chtimes(path, time.Time{}, time.Now()) // of the files, the answer that names it keeps it longest
			return path, nil
		}
	}
	return store(dir, payloadKind, offset, output.Extension(mime), max(0, output.PayloadBytes(raw)), fill)
}

// original is the payload of a display, in a file: it may be larger than what a process may hold.
type original struct {
	offset int64  // of its event
	path   string // where it is saved; empty if it is not
	file   string // that has it until the view is made
	pixels string // see File
}

// shrink returns it as a picture for a model.
func (o *original) shrink(ctx context.Context) (Picture, error) {
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
	o, read := original{offset: d.offset}, error(nil)
	fill := func(w io.Writer) error {
		read = p.payload(ctx, mime, raw, w)
		return read
	}
	path, err := SavePayload(p.opt.Dir, d.offset, mime, raw, fill)
	switch {
	case err == nil:
		o.path, o.pixels = path, p.savedAs(kind, path)
		return &o, nil
	case read != nil:
		return nil, read
	case show:
		file, failed := os.CreateTemp("", "colab-relay-*.part")
		if failed != nil {
			return nil, failed
		}
		o.file = file.Name()
		if failed = cmp.Or(fill(file), file.Close()); failed != nil {
			o.discard()
			return nil, failed
		}
	}
	p.view.saved(kind, "", err)
	return &o, nil
}

// savedAs notes a file that has a payload, and returns the size of a picture.
func (p *presenter) savedAs(kind, path string) (pixels string) {
	path = filepath.Clean(path)
	if f, err := bounded.Open(path); kind == "picture" && err == nil {
		pixels = Pixels(f)
		f.Close()
	}
	p.view.Files = append(p.view.Files, File{Kind: kind, Path: path, Pixels: pixels})
	return pixels
}
