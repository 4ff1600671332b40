package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"colabrelay/shared/contract"
)

// runtimePrefix begins the name of a kernel's own folder in the temp folder.
const runtimePrefix = "colab-relay-"

// ownerOf marks this executor's folders in the temp folder. It is derived from the
// instance id, which belongs to one state directory, and empty without one.
func ownerOf(instanceID string) string {
	if instanceID == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(instanceID))
	return hex.EncodeToString(sum[:6])
}

// removeRemains removes what killed kernels of this executor left in the temp folder: the
// folders of their sockets, and the files of unfinished saves. It keeps the files of
// finished saves, because the relay may still download them. No kernel of this executor
// may be running.
func removeRemains(owner string) error {
	if owner == "" {
		return nil
	}
	var faults []error
	for _, temp := range []string{os.TempDir(), contract.MemoryFolder} {
		faults = append(faults, removeRemainsIn(temp, owner))
	}
	return errors.Join(faults...)
}

func removeRemainsIn(temp, owner string) error {
	entries, err := os.ReadDir(temp)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	faults := []error{err}
	for _, entry := range entries {
		if path := filepath.Join(temp, entry.Name()); isRemains(path, entry.Name(), owner) {
			faults = append(faults, os.RemoveAll(path))
		}
	}
	return errors.Join(faults...)
}

func isRemains(path, name, owner string) bool {
	switch {
	case strings.HasPrefix(name, runtimePrefix+owner+"-"):
		return isOwnFolder(path)
	case strings.HasPrefix(name, contract.StateFolderPrefix+owner+"-"):
		_, err := os.Lstat(filepath.Join(path, contract.StateUnfinished))
		return err == nil && isOwnFolder(path)
	}
	return false
}

// isOwnFolder reports whether path is a folder of this user and not a link. In a shared
// temp folder, other users may have made one of that name.
func isOwnFolder(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
