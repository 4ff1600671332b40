package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"colabrelay/executor/account"
	"colabrelay/shared/contract"
)

// runtimePrefix begins the name of a kernel's own folder in the temp folder.
const runtimePrefix = "colab-relay-"

// maxRemains is how many folders in one temp folder are removed at a time: code of the
// kernel's user knows their names and may have made any number.
const maxRemains = 1000

// ownerOf marks this executor's folders in the temp folder. It is derived from the place of
// its state folder, which no other executor uses, and empty without one.
func ownerOf(place string) string {
	if place == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(place))
	return hex.EncodeToString(sum[:6])
}

// removeRemains removes what killed kernels of this executor left in the temp folder: the
// folders of their sockets, and the files of unfinished saves. It keeps the files of
// finished saves, because the relay may still download them. No kernel of this executor
// may be running.
func removeRemains(as *account.User, owner string) error {
	if owner == "" {
		return nil
	}
	var faults []error
	for _, temp := range []string{os.TempDir(), contract.MemoryFolder} {
		as.Do(func() { faults = append(faults, removeRemainsIn(temp, owner, as)) })
	}
	return errors.Join(faults...)
}

// removeRemainsIn reads the folder in pieces, because other users may have filled it.
func removeRemainsIn(temp, owner string, as *account.User) error {
	folder, err := os.Open(temp)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer folder.Close()
	var faults []error
	for {
		names, err := folder.Readdirnames(1024)
		for _, name := range names {
			if path := filepath.Join(temp, name); isRemains(path, name, owner, as.UID()) && len(faults) < maxRemains {
				faults = append(faults, as.RemoveAll(path))
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				faults = append(faults, err)
			}
			return errors.Join(faults...)
		}
	}
}

func isRemains(path, name, owner string, uid int) bool {
	switch {
	case strings.HasPrefix(name, runtimePrefix+owner+"-"):
		return isFolderOf(uid, path)
	case strings.HasPrefix(name, contract.StateFolderPrefix+owner+"-"):
		_, err := os.Lstat(filepath.Join(path, contract.StateUnfinished))
		return err == nil && isFolderOf(uid, path)
	}
	return false
}

// isFolderOf reports whether path is a folder of a user and not a link. In a shared temp
// folder, other users may have made one of that name.
func isFolderOf(uid int, path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == uid
}
