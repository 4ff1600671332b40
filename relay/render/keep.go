package render

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"colabrelay/shared/diskspace"
	"colabrelay/shared/lazy"
)

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

// Room makes room for a file of so many bytes in the folder of an execution: it removes outputs
// that the relay saved there or for other executions, first the oldest. It keeps the files that
// used names. It fails if the disk is nearly full.
func Room(dir string, bytes int64, used ...string) error {
	if err := usual.room(dir, bytes); err != nil {
		return err
	}
	return usual.trim(dir, bytes, used)
}

// room is Room but for the bound of one execution.
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

// trim removes the oldest outputs of an execution until one more fits.
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
var ours = lazy.Regexp(`^((output|result|traceback)-.*|(stdout|stderr)(-from-\d+)?\.txt|saved\.(json|lock)|\..*\.part)$`)

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
