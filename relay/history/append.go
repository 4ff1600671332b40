package history

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"colabrelay/shared/bounded"
)

// flush appends the pending lines.
func (w *writer) flush(run *openRun) error {
	if run.pending.Len() == 0 {
		return nil
	}
	text := run.pending.Bytes()
	if run.exists { // another program may have been killed while it wrote a line
		text = append([]byte("\n"), text...)
	}
	defer run.pending.Reset()
	size := int64(len(text))
	if run.full = run.full || run.head > 0 && run.head+size > w.runBytes()/2; run.full {
		return w.appendTail(run, text)
	}
	flags := os.O_WRONLY | os.O_APPEND
	if !run.exists {
		flags |= os.O_CREATE
	}
	if err := w.append(run.key+headSuffix, flags, text); err != nil {
		return err
	}
	run.exists = true
	run.head += size
	return nil
}

// appendTail appends to the tail, and replaces the older tail when this one is full.
func (w *writer) appendTail(run *openRun, text []byte) error {
	if _, err := os.Stat(filepath.Join(w.dir, run.key+headSuffix)); err != nil {
		return err // another program pruned it
	}
	if run.tail > 0 && run.tail+int64(len(text)) > w.runBytes()/4 {
		if err := os.Rename(filepath.Join(w.dir, run.key+tailSuffix), filepath.Join(w.dir, run.key+oldSuffix)); err != nil {
			return err
		}
		run.tail = 0
	}
	if err := w.append(run.key+tailSuffix, os.O_WRONLY|os.O_APPEND|os.O_CREATE, text); err != nil {
		return err
	}
	run.tail += int64(len(text))
	return nil
}

// append appends text to a file by one write.
func (w *writer) append(name string, flags int, text []byte) error {
	path := filepath.Join(w.dir, name)
	f, err := bounded.OpenFile(path, flags)
	if errors.Is(err, fs.ErrNotExist) && flags&os.O_CREATE != 0 {
		if err := os.MkdirAll(w.dir, 0o700); err != nil {
			return err
		}
		f, err = bounded.OpenFile(path, flags)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	w.written += int64(len(text))
	w.faulty = false
	return nil
}

// keep keeps a payload that was fetched, as far as the run's bound allows.
func (w *writer) keep(run *openRun, r *report) error {
	if err := w.flush(run); err != nil {
		return err
	}
	size := int64(len(r.content))
	if run.blobs < 0 {
		run.blobs = blobBytes(w.dir, run.key)
	}
	if run.blobs+size > w.runBytes() {
		return nil
	}
	path := blobPath(w.dir, run.key, r.blob.SHA256)
	if info, err := os.Stat(path); err == nil && info.Size() == size {
		return nil
	}
	run.blobs += size
	w.written += size
	return os.WriteFile(path, r.content, 0o600)
}

// blobBytes returns how many bytes of payloads are kept of a run.
func blobBytes(dir, key string) (sum int64) {
	entries, _ := os.ReadDir(dir) // a folder that cannot be read has none
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), key) && strings.HasSuffix(e.Name(), blobSuffix) {
			sum += info.Size()
		}
	}
	return sum
}
