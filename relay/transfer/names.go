package transfer

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"unicode/utf8"

	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// onWindows is passed as an argument to functions that tests call for both systems.
const onWindows = runtime.GOOS == "windows"

// localName returns the last part of a remote path, which is escaped as in the contract,
// as a safe name for a local file. Two remote names can become the same one. A name that is not
// UTF-8 stays escaped, because many file systems refuse it; none is that of a part file.
func localName(remote string, windows bool) string {
	name := strings.TrimRight(remote, "/")
	name = name[strings.LastIndexByte(name, '/')+1:]
	if raw := contract.UnescapeName(name); utf8.ValidString(raw) {
		name = raw
	}
	name = filename.Clean(name, windows)
	if folded := strings.ToLower(name); strings.HasSuffix(folded, partSuffix) || strings.HasSuffix(folded, partSuffix+journalSuffix) {
		name += "_"
	}
	return name
}

// partName returns the name of the part file of name. It leaves room for the journal's suffix. A
// shortened name contains a hash, because two long names may begin alike.
func partName(name string) string {
	const room = filename.MaxBytes - len(partSuffix) - len(journalSuffix)
	dir, base := path.Split(name)
	if len(base) > room {
		tag := fmt.Sprintf("~%.6x", sha256.Sum256([]byte(base)))
		base = strings.ToValidUTF8(base[:room-len(tag)], "") + tag
	}
	return dir + base + partSuffix
}

// nameFor returns the name, with slashes, of a download inside root. In an existing folder
// the download gets its own name, unless the same download created that folder.
func (to Local) nameFor(root *os.Root, r records, from origin, isDir bool) (string, error) {
	name := to.Name
	if onWindows {
		name = filepath.ToSlash(name)
	}
	own := from.ownName()
	if name == "" || strings.HasSuffix(name, "/") {
		name += own
	} else if info, err := root.Stat(name); err == nil && info.IsDir() && !(isDir && from.isOf(r, root, path.Clean(name))) {
		name = path.Join(name, own)
	}
	if err := filename.CheckPath(name, onWindows); err != nil {
		return "", fmt.Errorf("%w: %w", ErrForbiddenName, err)
	}
	return path.Clean(name), nil
}

// checkObeyed returns ErrForbiddenName if files that are Obeyed are not allowed and the download
// called name is one or, through links, in such a folder.
func (to Local) checkObeyed(root *os.Root, name string, isDir bool) error {
	if !to.NoObeyed {
		return nil
	}
	obeyed := filename.ObeyedPart(name)
	if !isDir {
		if base := path.Base(name); filename.ObeyedFile(base) {
			obeyed = base
		}
		name = path.Dir(name) // a link in place of the file is not followed
	}
	if obeyed == "" {
		obeyed = filename.ObeyedPart(existingPath(root, name))
	}
	if obeyed == "" {
		return nil
	}
	return fmt.Errorf("%w: programs may obey a file called %q, and %q gets none of those: choose another local_filename, or one in LOCAL_SAVE_DIR", ErrForbiddenName, obeyed, root.Name())
}

// existingPath returns the path in root, without links and with slashes, of as much of name as
// exists. It is "" if that is not in root.
func existingPath(root *os.Root, name string) string {
	top, err := filepath.EvalSymlinks(root.Name())
	if err != nil {
		return ""
	}
	for ; ; name = path.Dir(name) {
		real, err := filepath.EvalSymlinks(filepath.Join(top, filepath.FromSlash(name)))
		if err != nil && name != "." {
			continue
		}
		rel, relErr := filepath.Rel(top, real)
		if err != nil || relErr != nil || !filepath.IsLocal(rel) {
			return ""
		}
		return filepath.ToSlash(rel)
	}
}
