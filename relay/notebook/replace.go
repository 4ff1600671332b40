package notebook

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"colabrelay/shared/keep"
)

// replace writes a document in place of the file that was read before, or as a new file if there
// was none. After an error the file is as it was; the error is errOvertaken if that is not as it
// was read.
func (f *File) replace(before snapshot, edited *Document) error {
	temp := f.temp()
	info, err := f.writeTemp(temp, before.info, edited.Bytes())
	if err != nil {
		return err
	}
	defer os.Remove(temp)
	if f.beforeCheck != nil {
		f.beforeCheck()
	}
	if !f.isStill(before) {
		return errOvertaken
	}
	if f.beforeReplace != nil {
		f.beforeReplace()
	}
	if before.info == nil {
		err = unchanged(create(temp, f.path))
	} else {
		err = f.exchange(temp, info, before)
	}
	if before.info == nil && errors.Is(err, fs.ErrExist) {
		return errOvertaken
	}
	if err != nil {
		return err
	}
	f.last = snapshot{Document: edited, info: info}
	return nil
}

// temp returns the file beside the notebook that is to replace it. All who hold the same lock use
// the same one, so that it does not pile up where programs are killed.
func (f *File) temp() string {
	host, _ := os.Hostname() // two computers that share a folder do not share locks
	sum := sha256.Sum256([]byte(host + "\x00" + f.lock))
	return filepath.Join(filepath.Dir(f.path), ".colab-relay-"+hex.EncodeToString(sum[:8])+".tmp")
}

// writeTemp writes the new text with the mode and owner of the file that it is to replace, which
// may be nil, and returns what the system says of it.
func (f *File) writeTemp(temp string, old fs.FileInfo, text []byte) (fs.FileInfo, error) {
	if old != nil {
		if err := writable(f.path); err != nil {
			return nil, err
		}
	}
	_ = os.Remove(temp) // of a program that was killed
	if err := writeNew(temp, text, old); err != nil {
		return nil, unchanged(err)
	}
	return os.Stat(temp)
}

// writable returns an error if the file itself must not be written, which a rename would ignore.
func writable(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return unchanged(err)
	}
	return file.Close()
}

// isStill reports whether the file has the bytes that were read.
func (f *File) isStill(before snapshot) bool {
	info, err := os.Stat(f.path)
	if before.info == nil || err != nil {
		return before.info == nil && errors.Is(err, fs.ErrNotExist)
	}
	return before.isStill(info) || hasBytes(f.path, before.Bytes()) != nil
}

// CreateFile writes a new file, with all of text or not at all. If there is a file of that name,
// the error matches fs.ErrExist.
func CreateFile(path string, text []byte) error {
	temp := filepath.Join(filepath.Dir(path), ".colab-relay-"+rand.Text()+".tmp")
	if err := writeNew(temp, text, nil); err != nil {
		return err
	}
	defer os.Remove(temp)
	return create(temp, path)
}

// create gives a new file its name, unless there is one of that name now.
func create(temp, path string) error {
	err := os.Link(temp, path)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	text, err := os.ReadFile(temp) // the file system has no links
	if err != nil {
		return err
	}
	return writeNew(path, text, nil)
}

// writeNew writes a file at a path at which there must be none, with the mode and owner of another one
// unless that is nil.
func writeNew(path string, text []byte, like fs.FileInfo) error {
	mode := fs.FileMode(0o666) // less the umask, as editors do
	if like != nil {
		mode = 0o600
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil && like != nil {
		keepOwner(file, like)
		err = file.Chmod(like.Mode().Perm())
	}
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		_ = os.Remove(path)
	}
	return err
}

// exchange gives the new file the notebook's name. Where the system can exchange two names, it
// looks at what it replaced, and puts that back if it is not what was read.
func (f *File) exchange(temp string, ours fs.FileInfo, before snapshot) error {
	switch err := exchangeNames(temp, f.path); {
	case errors.Is(err, fs.ErrNotExist):
		return errOvertaken
	case err != nil:
		return unchanged(keep.Replace(temp, f.path))
	}
	if (&File{path: temp}).isStill(before) {
		return nil
	}
	if err := exchangeNames(temp, f.path); err != nil {
		return fmt.Errorf("putting back the notebook that another program saved: %w", err)
	}
	if isFile(temp, ours) {
		return errOvertaken
	}
	_ = exchangeNames(temp, f.path) // yet another program has replaced ours, which it could read: its file stays
	return nil
}

func isFile(path string, info fs.FileInfo) bool {
	now, err := os.Stat(path)
	return err == nil && os.SameFile(now, info)
}

// unchanged says that an error left the notebook as it was.
func unchanged(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the notebook is not changed, because its new version could not be written: %w", err)
}
