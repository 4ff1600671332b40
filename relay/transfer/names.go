package transfer

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// onWindows is passed as an argument to functions that tests call for both systems.
const onWindows = runtime.GOOS == "windows"

// localName returns the last part of a remote path, which is escaped as in the contract,
// as a safe name for a local file. Two remote names can become the same one.
func localName(remote string, windows bool) string {
	name := strings.TrimRight(remote, "/")
	name = name[strings.LastIndexByte(name, '/')+1:]
	if !windows {
		name = contract.UnescapeName(name)
	}
	return filename.Clean(name, windows)
}

// partName returns the name of the part file of name. It leaves room for a number and the
// journal's suffix. A shortened name contains a hash, because two long names may begin
// alike.
func partName(name string) string {
	const room = filename.MaxBytes - len(partSuffix) - len(journalSuffix) - len(" (99)")
	dir, base := path.Split(name)
	if len(base) > room {
		tag := fmt.Sprintf("~%.6x", sha256.Sum256([]byte(base)))
		base = strings.ToValidUTF8(base[:room-len(tag)], "") + tag
	}
	return dir + base + partSuffix
}

// nameFor returns the name, with slashes, of a download inside root. In an existing folder
// the download gets its own name, unless the same download created that folder.
func (to Local) nameFor(root *os.Root, from origin, isDir bool) (string, error) {
	name := to.Name
	if onWindows {
		name = filepath.ToSlash(name)
	}
	own := from.ownName(root)
	if name == "" || strings.HasSuffix(name, "/") {
		name += own
	} else if info, err := root.Stat(name); err == nil && info.IsDir() && !(isDir && from.isOf(root, path.Clean(name))) {
		name = path.Join(name, own)
	}
	if err := filename.CheckPath(name, onWindows); err != nil {
		return "", fmt.Errorf("%w: %w", ErrForbiddenName, err)
	}
	return path.Clean(name), nil
}
