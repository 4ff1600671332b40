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
	"io/fs"
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
	"colabrelay/shared/filename"
	"colabrelay/shared/keep"
	"colabrelay/shared/lazy"
)

// saved describes the text in an execution's folder: that of the events from the first one on, which
// later calls extend. Thus each byte is fetched and saved once, even if many calls read the
// execution at various offsets and at the same time.
type saved struct {
	To    int64            `json:"to"`    // offset after the last event; 0 if nothing is saved
	Bytes map[string]int64 `json:"bytes"` // valid bytes of each stream's file
	Ended bool             `json:"ended"` // the execution has no events after To
}

const (
	savedFile    = "saved.json"
	maxSavedFile = 64 << 10 // bytes; a larger one is not ours
	// maxUnsaved is how much text waits in memory. What is shorter than an answer is never saved.
	maxUnsaved = 512 << 10
	// maxStream bounds the saved text of a stream. An executor keeps no longer log, and an
	// execution that never ends would fill the laptop's disk.
	maxStream = 256 << 20
	// lastEvents is how many saved events are read again after a skip, for the newest text, the
	// result or the error.
	lastEvents = 16
)

// loadSaved returns the description in dir.
func loadSaved(dir string) (s saved) {
	none := saved{Bytes: map[string]int64{}}
	if dir == "" {
		return none
	}
	b, err := bounded.ReadFile(filepath.Join(dir, savedFile), maxSavedFile)
	if err != nil || json.Unmarshal(b, &s) != nil || s.Bytes == nil {
		return none
	}
	return s
}

// unsaved is the text of the events from an offset on that may be saved.
type unsaved struct {
	off   bool // nothing is saved any more
	err   error
	from  int64
	bytes int
	text  map[string][]byte // of each stream
}

// add adds the text of the newest event.
func (u *unsaved) add(stream, text string, offset int64) {
	if u.off || offset < u.from {
		return
	}
	if u.text == nil {
		u.text = map[string][]byte{}
	}
	u.text[stream] = append(u.text[stream], text...)
	u.bytes += len(text)
}

// extend saves the text that is not saved yet. It keeps its first error and saves no more then,
// because a full disk on the laptop must not fail the execution. If another call was faster, its
// text is kept, and the next call continues after it.
func (c *Collector) extend() error {
	u := &c.unsaved
	if u.err == nil && !u.off {
		u.err = c.append()
	}
	u.text, u.bytes = nil, 0
	u.off = u.off || u.err != nil
	return u.err
}

func (c *Collector) append() error {
	if err := usual.room(c.opt.Dir, int64(c.unsaved.bytes)); err != nil {
		return err
	}
	unlock, err := keep.Lock(context.Background(), filepath.Join(c.opt.Dir, "saved.lock")) // its owner only appends to files
	if err != nil {
		return err
	}
	defer unlock()
	now := &c.saved
	*now = loadSaved(c.opt.Dir)
	if c.unsaved.off = now.Ended || now.To != c.unsaved.from; c.unsaved.off || c.next <= now.To && !c.ended {
		return nil
	}
	for stream, text := range c.unsaved.text {
		left := maxStream - now.Bytes[stream]
		switch {
		case left < 0 || len(text) == 0:
			continue
		case int64(len(text)) > left:
			text = append(text[:left:left], "\n[… the rest was not saved …]\n"...)
		}
		if err := output.SaveAt(c.opt.Dir, stream+".txt", now.Bytes[stream], text); err != nil {
			return err
		}
		now.Bytes[stream] += int64(len(text))
	}
	now.To, now.Ended = max(now.To, c.next), c.ended
	c.unsaved.from = now.To
	file, err := createIn(c.opt.Dir, savedFile)
	if err == nil {
		_, err = filled(file, func(w io.Writer) error { return json.NewEncoder(w).Encode(now) }, func() string { return filepath.Join(c.opt.Dir, savedFile) })
	}
	return err
}

// Skip skips events that are saved already and would not be shown: those between the head,
// once it is complete, and the newest ones. The next event to add is at Next.
func (c *Collector) Skip() {
	if c.opt.Page || !c.complete || c.saved.To-lastEvents <= c.next {
		return
	}
	c.next = c.saved.To - lastEvents
	for name, stream := range map[string]*stream{contract.Stdout: &c.stdout, contract.Stderr: &c.stderr} {
		if c.saved.Bytes[name] > 0 {
			stream.skip()
		}
	}
}

// viewSaved names the files of the streams whose texts are not shown as a whole, if they have all
// events up to the view's last one. A page names the call for what follows it.
func (c *Collector) viewSaved(v *View, cut []string) {
	if c.opt.Page || len(cut) == 0 && c.saved.To == 0 {
		return
	}
	err := c.extend()
	if c.saved = loadSaved(c.opt.Dir); err == nil && c.saved.To < c.next { // another call may have saved more
		err = errNoFolder
	}
	for _, kind := range cut {
		path := ""
		if err == nil {
			path = filepath.Join(c.opt.Dir, kind+".txt")
		}
		v.saved(kind, path, err)
	}
}

// Bounds of what is kept below the folder for saved output, which has a folder for each
// execution. Displays that are updated have a new file for each state that is shown, so one run
// could fill a disk.
const (
	// maxFolder bounds the outputs of one execution. The oldest are removed.
	maxFolder = 256 << 20
	// maxKept bounds all executions. The folders that were written to longest ago are emptied.
	maxKept = 4 << 30
	// leastFree is how much of a disk stays free, at most a twentieth of it. Nothing is saved
	// beyond that.
	leastFree = 1 << 30
	// fileCost is the least that a file counts.
	fileCost = 4 << 10
)

// keeping are the bounds, which are smaller in tests.
type keeping struct {
	folder, all int64
	space       func(dir string) (diskspace.Space, bool)

	mu   sync.Mutex
	left map[string]int64 // bytes to save below a folder until it is looked through again
}

var usual = &keeping{folder: maxFolder, all: maxKept, space: diskspace.Of}

// room makes room for a file of so many bytes in the folder of an execution: it removes what was
// saved longest ago for other executions. It fails if the disk is nearly full.
func (k *keeping) room(dir string, bytes int64) error {
	if dir == "" {
		return errNoFolder
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := k.spare(dir, bytes); err != nil {
		return err
	}
	k.trimAll(dir, max(bytes, fileCost))
	return nil
}

// errReserve is a disk whose last bytes are not the relay's to take.
var errReserve = errors.New("the disk is nearly full")

// spare fails if less than the reserve would stay free.
func (k *keeping) spare(dir string, bytes int64) error {
	space, known := k.space(dir)
	if !known || space.Free-bytes >= min(leastFree, space.Size/20) {
		return nil
	}
	return fmt.Errorf("%w: %d MiB are free, and the relay leaves %d MiB", errReserve, space.Free>>20, min(leastFree, space.Size/20)>>20)
}

// kept is a file that the relay saved, or the folder of an execution.
type kept struct {
	path    string
	bytes   int64
	changed time.Time
}

// dropOldest removes what was changed longest ago until the total is at most most, and returns the
// new total.
func dropOldest(all []kept, total, most int64, remove func(path string) bool) int64 {
	slices.SortFunc(all, func(a, b kept) int { return cmp.Or(a.changed.Compare(b.changed), cmp.Compare(a.path, b.path)) })
	for _, each := range all {
		if total > most && remove(each.path) {
			total -= each.bytes
		}
	}
	return total
}

// trim removes the oldest outputs of an execution but those that used names until one more fits.
func (k *keeping) trim(dir string, bytes int64, used []string) error {
	files := slices.DeleteFunc(keptIn(dir), func(f kept) bool { return !strings.HasPrefix(filepath.Base(f.path), payloadKind+"-") })
	total := max(bytes, fileCost)
	for _, f := range files {
		total += f.bytes
	}
	if dropOldest(files, total, k.folder, func(path string) bool { return !slices.Contains(used, path) && os.Remove(path) == nil }) > k.folder {
		return fmt.Errorf("this run's outputs exceed %d MiB", k.folder>>20)
	}
	return nil
}

// trimAll empties the folders of other executions until so many bytes fit. It looks through
// them only once in a while.
func (k *keeping) trimAll(dir string, bytes int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	root := filepath.Dir(dir)
	if left, known := k.left[root]; known && left >= bytes {
		k.left[root] -= bytes
		return
	}
	var all []kept
	total := bytes
	entries, _ := os.ReadDir(root) // one that cannot be read has nothing to remove
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		f := kept{path: filepath.Join(root, e.Name()), bytes: fileCost}
		for _, file := range keptIn(f.path) {
			f.bytes += file.bytes
			if file.changed.After(f.changed) {
				f.changed = file.changed
			}
		}
		all, total = append(all, f), total+f.bytes
	}
	total = dropOldest(all, total, k.all, func(path string) bool { return path != filepath.Clean(dir) && empty(path) })
	if k.left == nil {
		k.left = map[string]int64{}
	}
	k.left[root] = max(0, (k.all-total)/2)
}

// empty removes what the relay saved in the folder of an execution, and the folder unless
// somebody else put something there. It reports whether nothing of the relay's is left.
func empty(dir string) bool {
	files := keptIn(dir)
	// First the description: texts without it are replaced, but it must not outlive them.
	slices.SortFunc(files, func(a, b kept) int {
		return -cmp.Compare(strings.Count(a.path, savedFile), strings.Count(b.path, savedFile))
	})
	for _, f := range files {
		if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	_ = os.Remove(dir) // intended to fail if the folder has other files
	return true
}

// payloadKind begins the names of files that have the payload of a display.
const payloadKind = "output"

// ours matches the names of the files that the relay saves for an execution.
var ours = lazy.Regexp(`^((output|result|traceback)-.*|(stdout|stderr)\.txt|saved\.(json|lock)|\..*\.part)$`)

// keptIn returns the relay's files in the folder of an execution.
func keptIn(dir string) (files []kept) {
	entries, _ := os.ReadDir(dir) // one that cannot be read has nothing to remove
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.Mode().IsRegular() && ours().MatchString(e.Name()) {
			files = append(files, kept{filepath.Join(dir, e.Name()), max(info.Size(), fileCost), info.ModTime()})
		}
	}
	return files
}

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

// nameOf returns the name of a file with output of the event at offset, by its digest.
func nameOf(kind string, offset int64, sum, extension string) string {
	return fmt.Sprintf("%s-%d-%.16s%s", kind, offset, sum, extension)
}

// store saves what fill writes, of about so many bytes, in a file that is named after its content,
// so it replaces no other one.
func store(dir, kind string, offset int64, extension string, bytes int64, fill func(io.Writer) error, used ...string) (string, error) {
	if err := usual.room(dir, bytes); err != nil {
		return "", err
	}
	if err := usual.trim(dir, bytes, used); err != nil {
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
