package transfer

import (
	"encoding/json"
	"errors"
	"os"

	"colabrelay/shared/contract"
	"colabrelay/shared/ranges"
)

const (
	partSuffix    = ".part"
	journalSuffix = ".json"                  // after partSuffix
	journalFormat = "colab-relay download 1" // marks a file as a journal
	maxJournal    = 1 << 20                  // bytes; a larger file is not a journal
)

// errNotOurs means that a file is not a journal of a download, or is damaged.
var errNotOurs = errors.New("not a journal of a download")

// journal lists the bytes that a part file has. It is renamed into place, so a kill leaves
// the old or the new one. It is not synced, so after a power cut it may list bytes that the
// disk lost; the digest of the whole file detects that.
type journal struct {
	Format    string     `json:"format"`
	Remote    string     `json:"remote_path"`
	ETag      string     `json:"etag"`
	SizeBytes int64      `json:"size_bytes"`
	SHA256    string     `json:"sha256,omitempty"` // empty until the executor computed it
	Received  ranges.Set `json:"have"`
}

// matches reports whether the part's bytes are of the file that st describes. The same
// file has a different ETag on another VM, but the same digest.
func (j *journal) matches(remote string, st contract.FileStat) bool {
	if j.Remote != remote || j.SizeBytes != st.SizeBytes {
		return false
	}
	return j.ETag == st.ETag || j.SHA256 != "" && j.SHA256 == st.SHA256
}

// mayBeOf reports whether the part has bytes of an earlier, shorter state of that file.
func (j *journal) mayBeOf(remote string, st contract.FileStat) bool {
	return len(j.Received) > 0 && j.Remote == remote && j.SizeBytes < st.SizeBytes && j.ETag != st.ETag
}

func readJournal(root *os.Root, name string) (journal, error) {
	text, err := readOwn(root, name, maxJournal)
	if err != nil {
		return journal{}, err
	}
	return parseJournal(text)
}

// parseJournal accepts only what part.saveLocked writes.
func parseJournal(text []byte) (journal, error) {
	var j journal
	if len(text) > maxJournal || json.Unmarshal(text, &j) != nil || j.Format != journalFormat {
		return journal{}, errNotOurs
	}
	if j.SizeBytes < 0 || !j.Received.Valid(j.SizeBytes) || j.SHA256 != "" && !contract.SHA256Pattern().MatchString(j.SHA256) {
		return journal{}, errNotOurs
	}
	return j, nil
}
