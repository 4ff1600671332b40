package transfer

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"unicode/utf8"

	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
)

const (
	lastUploadsFile   = "uploads.json"
	lastUploadsFormat = "colab-relay uploads 1" // marks a file as such a record
	// maxLastUploads bounds the record, to the newest ones. A file whose upload was
	// forgotten is replaced only with Overwrite.
	maxLastUploads      = 10_000
	maxLastUploadsBytes = 8 << 20 // of their paths and digests; fewer uploads fit if the paths are long
)

// lastUploads records the SHA-256 of the files that uploads from this computer put on VMs.
// A later upload may replace such a file while it still has that digest: nothing is lost,
// because only the copy on this computer changed. A nil one records nothing.
type lastUploads struct {
	dir string

	mu    sync.Mutex
	known map[uploadKey]string // nil until the record is read
	fresh []lastUpload         // to be saved
}

// uploadKey is a file on a VM.
type uploadKey struct {
	Instance string `json:"instance_id"`
	Path     string `json:"path"` // absolute and escaped
}

// lastUpload is one entry of the record.
type lastUpload struct {
	uploadKey
	SHA256 string `json:"sha256"`
	Local  string `json:"local,omitempty"` // the file on this computer
}

// lastUploadsRecord is the content of the file, the newest upload last.
type lastUploadsRecord struct {
	Format  string       `json:"format"`
	Uploads []lastUpload `json:"uploads"`
}

// openLastUploads returns the record in a folder, or nil if there is no folder for it.
func openLastUploads(dir string) *lastUploads {
	if dir == "" {
		return nil
	}
	return &lastUploads{dir: dir}
}

// digest returns the SHA-256 of the last upload to a path, or "" if none is recorded.
func (l *lastUploads) digest(instance, path string) string {
	if l == nil || instance == "" {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = map[uploadKey]string{}
		record, _ := l.record().Read() // save reports a damaged one
		for _, u := range record.Uploads {
			l.known[u.uploadKey] = u.SHA256
		}
	}
	return l.known[uploadKey{instance, path}]
}

// UploadedFile is a file of this computer that was put on a VM.
type UploadedFile struct {
	Local  string
	Remote string // absolute and escaped
	SHA256 string
}

// Uploaded returns the files below a folder that uploads put on a VM, as far as the record in
// recordDir knows them.
func Uploaded(recordDir, instance, folder string) (files []UploadedFile) {
	l := openLastUploads(recordDir)
	full, err := filepath.Abs(folder)
	if l == nil || instance == "" || err != nil {
		return nil
	}
	record, _ := l.record().Read() // save reports a damaged one
	for _, u := range record.Uploads {
		if place, err := filepath.Rel(full, u.Local); u.Instance == instance && err == nil && filepath.IsLocal(place) {
			files = append(files, UploadedFile{filepath.Join(folder, place), u.Path, u.SHA256})
		}
	}
	return files
}

// add records that a file is on the VM. It is not on the disk before save.
func (l *lastUploads) add(instance, path, sha, local string) {
	if l == nil || instance == "" || !contract.SHA256Pattern().MatchString(sha) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if full, err := filepath.Abs(local); local != "" && err == nil && utf8.ValidString(full) {
		local = full
	} else {
		local = ""
	}
	l.fresh = append(l.fresh, lastUpload{uploadKey{instance, path}, sha, local})
}

// save adds the new uploads to the file. A relay that runs at the same time may add others.
func (l *lastUploads) save() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.fresh) == 0 {
		return nil
	}
	_, err := l.record().Change(func(r *lastUploadsRecord) error {
		r.Format, r.Uploads = lastUploadsFormat, newest(append(r.Uploads, l.fresh...))
		return nil
	})
	if err != nil {
		return fmt.Errorf("recording what was uploaded: %w", markDiskFull(err))
	}
	l.fresh = nil
	return nil
}

// record is the file. A damaged one is kept under another name when the next upload is saved.
func (l *lastUploads) record() keep.File[lastUploadsRecord] {
	return keep.File[lastUploadsRecord]{
		Path: filepath.Join(l.dir, lastUploadsFile), What: "the record of uploads", Max: 4 * maxLastUploadsBytes,
		Check: func(r *lastUploadsRecord) error {
			if r.Format != lastUploadsFormat {
				return errNotOurs
			}
			return nil
		},
	}
}

// newest returns the last upload to each path, as many of the newest as the bounds allow.
func newest(all []lastUpload) []lastUpload {
	room := maxLastUploadsBytes
	seen := make(map[uploadKey]bool, len(all))
	var kept []lastUpload
	for i := len(all) - 1; i >= 0 && len(kept) < maxLastUploads; i-- {
		u := all[i]
		if seen[u.uploadKey] || !contract.SHA256Pattern().MatchString(u.SHA256) {
			continue
		}
		if room -= len(u.Instance) + len(u.Path) + len(u.SHA256) + len(u.Local); room < 0 {
			break
		}
		seen[u.uploadKey] = true
		kept = append(kept, u)
	}
	slices.Reverse(kept)
	return kept
}
