package transfer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// onWindows, as most others need both answers in tests.
const onWindows = runtime.GOOS == "windows"

// LocalName is the last part of a remote path, which is escaped as the contract has
// it, as a name that a local file may have: never empty, a dot or two, never with a
// separator or a character that is not visible, at most 255 bytes; on windows UTF-8, and
// none that Windows refuses, hides or takes for a device. Two remote names can become the
// same one.
func LocalName(remote string, windows bool) string {
	name := strings.TrimRight(remote, "/")
	name = name[strings.LastIndexByte(name, '/')+1:]
	if !windows {
		name = contract.UnescapeName(name)
	}
	return filename.Clean(name, windows)
}

// partName is the name of the part file of name, short enough for a number and the
// journal's suffix after it. One that had to be shortened holds a hash, as two long
// names may begin alike.
func partName(name string) string {
	const room = filename.MaxBytes - len(partSuffix) - len(journalSuffix) - len(" (99)")
	dir, base := path.Split(name)
	if len(base) > room {
		sum := sha256.Sum256([]byte(base))
		tag := "~" + hex.EncodeToString(sum[:6])
		base = strings.ToValidUTF8(base[:room-len(tag)], "") + tag
	}
	return dir + base + partSuffix
}

// nameFor is the name, with slashes, that a download gets inside root. Into a folder
// that is there and not from the same download it goes under its own name.
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
