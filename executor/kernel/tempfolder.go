package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"colabrelay/shared/contract"
)

// runtimePrefix begins the name of a life's own folder in the temp folder.
const runtimePrefix = "colab-relay-"

// ownerOf is what tells this executor's folders in the temp folder from another's. It is
// made of the instance id, which no other state dir has; without one it is empty.
func ownerOf(instanceID string) string {
	if instanceID == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(instanceID))
	return hex.EncodeToString(sum[:6])
}

// runtimeDir is a short private folder for one life's connection file and
// sockets: a path under the work directory could pass the 107 bytes a socket's may have.
func runtimeDir(owner string) (string, error) {
	return os.MkdirTemp("", runtimePrefix+owner+"-")
}

// removeRemains removes what kernels of this executor left in the temp folder when they
// or it were killed: the folders of their sockets, and the files of saves that did not
// end. No kernel of this executor runs meanwhile. A file of a save that did end stays:
// the relay may still fetch it.
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
	f, err := os.Open(temp)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for what killed kernels left: %w", err)
	}
	defer f.Close()
	var faults []error
	for {
		names, err := f.Readdirnames(1000)
		for _, name := range names {
			if path := filepath.Join(temp, name); isRemains(path, name, owner) {
				faults = append(faults, os.RemoveAll(path))
			}
		}
		if errors.Is(err, io.EOF) {
			return errors.Join(faults...)
		}
		if err != nil {
			return errors.Join(append(faults, fmt.Errorf("looking for what killed kernels left: %w", err))...)
		}
	}
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

// isOwnFolder reports whether path is a folder, and no link to one, of this user's: in a
// shared temp folder anybody may take any name.
func isOwnFolder(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
