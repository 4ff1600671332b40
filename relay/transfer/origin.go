package transfer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

const (
	originSuffix = ".from"
	originFormat = "colab-relay folder 1" // marks a file as an origin
	maxOrigin    = 64 << 10               // bytes; a larger file is not an origin
)

// origin records which download created a local folder.
// The executor decides whether a path on the VM is a folder, so without this record a
// hostile executor could write into any local folder with that name.
type origin struct {
	Format  string `json:"format"`
	Runtime string `json:"runtime"`
	Remote  string `json:"remote_path"` // absolute and escaped
}

// newOrigin returns the origin of a download of remote. A relative path means the same as
// that path below /content.
func newOrigin(runtime, remote string) origin {
	// One path may be written in several ways, and a shell passes any bytes, which JSON cannot carry.
	remote = contract.EscapeName(contract.UnescapeName(remote))
	if !path.IsAbs(remote) {
		remote = path.Join(contentDir, remote)
	}
	return origin{Format: originFormat, Runtime: runtime, Remote: path.Clean(remote)}
}

// ownName returns the local name of a download for which the caller chose none. It depends
// on the path that the caller typed, never on an answer. A download of /, /content or ~ gets
// the runtime's name.
func (o origin) ownName(root *os.Root) string {
	if o.Remote == "/" || o.Remote == contentDir || o.Remote == contentDir+"/~" {
		return newNamer(root).name(o.Runtime)
	}
	return newNamer(root).name(o.Remote)
}

// isOf reports whether this download created the folder called name in root.
func (o origin) isOf(r records, root *os.Root, name string) bool {
	info, err := root.Stat(name)
	if err != nil || !info.IsDir() {
		return false
	}
	text, err := readOwn(r.root, r.name(name, originSuffix), maxOrigin)
	var found origin
	return err == nil && json.Unmarshal(text, &found) == nil && found == o
}

// save records that this download created the folder called name, which need not exist
// yet.
func (o origin) save(r records, name string) error {
	r.prune()
	return saveOwn(r.root, r.name(name, originSuffix), o)
}

// claimed is the destination folder of a download.
type claimed struct {
	name   string
	same   bool // it has exactly the files of the download
	unlock func()
}

// claimFolder finds the destination folder of a download: name or the first numbered name
// that is free, that an earlier call of the same download created, or that has exactly the
// same files, as isSame reports. With Overwrite any folder will do. No other download can
// use the folder until unlock is called.
func (j *job) claimFolder(root *os.Root, name string, from origin, isSame func(name string) (bool, error)) (c claimed, err error) {
	for i := range maxEntries + 1 {
		c.name = filename.Numbered(name, i)
		if c.unlock, err = j.records.lock(root, c.name+"/"); err != nil {
			return c, err
		}
		info, err := root.Stat(c.name)
		isDir := err == nil && info.IsDir()
		_, linkErr := root.Lstat(c.name)
		switch {
		case errors.Is(linkErr, fs.ErrNotExist), from.isOf(j.records, root, c.name), isDir && j.options.Overwrite:
			return c, nil
		case linkErr != nil:
			c.unlock()
			return c, fmt.Errorf("inspecting %q: %w", absolute(root, c.name), linkErr)
		case isDir:
			if c.same, err = isSame(c.name); c.same {
				return c, nil
			}
		}
		c.unlock()
		if isDir && err != nil {
			return c, err
		}
	}
	return c, fmt.Errorf("%w: %q and its numbered names are taken", ErrForbiddenName, name)
}

// makeTree creates the folders of a download, the first of which contains the others. It
// refuses links among the others, because files would leave the first folder through them.
func makeTree(root *os.Root, folders []string) error {
	for i, folder := range folders {
		if info, err := root.Lstat(folder); i > 0 && err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%w: %q is a link, and the download needs a folder of that name: remove the link first", ErrForbiddenName, absolute(root, folder))
		}
		if err := makeFolder(root, folder); err != nil {
			return err
		}
	}
	return nil
}

// readOwn reads a file that saveOwn wrote, at most limit bytes. A longer file is
// errNotOurs.
func readOwn(root *os.Root, name string, limit int64) ([]byte, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, errNotOurs
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return bounded.ReadAll(f, limit)
}

// saveOwn stores v as JSON under name in root, by a rename.
func saveOwn(root *os.Root, name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing %q: %w", absolute(root, name), err)
	}
	fresh := hiddenName(name, ".new")
	if err := root.WriteFile(fresh, append(text, '\n'), 0o600); err != nil {
		_ = root.Remove(fresh)
		return fmt.Errorf("writing %q: %w", absolute(root, name), markDiskFull(err))
	}
	if err := root.Rename(fresh, name); err != nil {
		return fmt.Errorf("writing %q: %w", absolute(root, name), markDiskFull(err))
	}
	return nil
}
