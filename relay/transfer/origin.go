package transfer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"unicode/utf8"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

const (
	originSuffix = ".from"
	originFormat = "colab-relay folder 1" // what a file must say to be ours
	maxOrigin    = 64 << 10               // bytes; a larger one is not ours
)

// origin says which download a local folder is from: it stands beside the folder and
// stays there. Whether a path on the VM is a folder is for the executor to say, so
// without it a hostile one could write into any folder that has the name.
type origin struct {
	Format  string `json:"format"`
	Runtime string `json:"runtime"`
	Remote  string `json:"remote_path"` // absolute and escaped
}

// newOrigin is the origin of what a caller calls remote. A relative path and the one
// below /content that it stands for are the same.
func newOrigin(runtime, remote string) origin {
	if !utf8.ValidString(remote) { // a shell hands on any bytes, JSON does not
		remote = contract.EscapeName(remote)
	}
	if !path.IsAbs(remote) {
		remote = path.Join(contentDir, remote)
	}
	return origin{Format: originFormat, Runtime: runtime, Remote: path.Clean(remote)}
}

// ownName is the local name of a download that got no other. It comes from what the
// caller typed, never from an answer. A path without a name of its own, as the
// workdir's, gets the runtime's.
func (o origin) ownName(root *os.Root) string {
	if o.Remote == "/" || o.Remote == contentDir {
		return newNamer(root).name(o.Runtime)
	}
	return newNamer(root).name(o.Remote)
}

// isOf reports whether the folder at name in root is from this download.
func (o origin) isOf(root *os.Root, name string) bool {
	info, err := root.Stat(name)
	if err != nil || !info.IsDir() {
		return false
	}
	text, err := readOwn(root, hiddenName(name, originSuffix), maxOrigin)
	var found origin
	return err == nil && json.Unmarshal(text, &found) == nil && found == o
}

// note keeps that the folder at name, which need not be there yet, is from this
// download.
func (o origin) save(root *os.Root, name string) error {
	return saveOwn(root, hiddenName(name, originSuffix), o)
}

// claimFolder finds the folder that a download goes to: name, or the first numbered
// one, where nothing is there or what an earlier call of the same download made.
// A folder from elsewhere is taken only where Overwrite asks for it. The folder is
// kept from other downloads until unlock is called.
func (j *job) claimFolder(root *os.Root, name string, from origin) (at string, unlock func(), err error) {
	for i := 0; i <= maxEntries; i++ {
		at = filename.Numbered(name, i)
		if unlock, err = lockName(root, at+"/"); err != nil {
			return at, nil, err
		}
		info, err := root.Stat(at)
		_, linkErr := root.Lstat(at)
		switch {
		case errors.Is(linkErr, fs.ErrNotExist), from.isOf(root, at), err == nil && info.IsDir() && j.options.Overwrite:
			return at, unlock, nil
		case linkErr != nil:
			unlock()
			return at, nil, fmt.Errorf("looking at %q: %w", absolute(root, at), linkErr)
		}
		unlock()
	}
	return at, nil, fmt.Errorf("%w: %q and its numbered names are taken", ErrForbiddenName, name)
}

// makeTree makes the folders of a download, the first of which holds the others. A link
// among the others would lead files out of the first.
func makeTree(root *os.Root, folders []string) error {
	for i, folder := range folders {
		if info, err := root.Lstat(folder); i > 0 && err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%w: %q is a link, and a folder of that name is to be made; remove the link first", ErrForbiddenName, absolute(root, folder))
		}
		if err := makeFolder(root, folder); err != nil {
			return err
		}
	}
	return nil
}

// readOwn reads a file of ours in root, at most limit bytes. A longer one is not ours.
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

// saveOwn puts v, as JSON, into place at name in root.
func saveOwn(root *os.Root, name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing %q: %w", absolute(root, name), err)
	}
	fresh := hiddenName(name, ".new")
	if err := writeFile(root, fresh, bytes.NewReader(append(text, '\n'))); err != nil {
		_ = root.Remove(fresh)
		return fmt.Errorf("writing %q: %w", absolute(root, name), markDiskFull(err))
	}
	if err := root.Rename(fresh, name); err != nil {
		return fmt.Errorf("writing %q: %w", absolute(root, name), markDiskFull(err))
	}
	return nil
}
