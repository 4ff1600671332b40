package transfer

import (
	"encoding/json"
	"errors"
	"io"
	"os"

	"colabrelay/shared/contract"
)

const (
	partSuffix    = ".part"
	journalSuffix = ".json"                  // after partSuffix
	journalFormat = "colab-relay download 1" // what a file must say to be ours
	maxJournal    = 1 << 20                  // bytes; a larger one is not ours
)

// errNotOurs is what is no journal of a download, or a damaged one.
var errNotOurs = errors.New("not a journal of a download")

// journal says what a part file holds. It is renamed into place, so it is whole or
// the one before; it is not synced, so after a power cut it may promise what the disk
// lost: the whole file's digest finds that out.
type journal struct {
	Format    string `json:"format"`
	Remote    string `json:"remote_path"`
	ETag      string `json:"etag"`
	SizeBytes int64  `json:"size_bytes"`
	SHA256    string `json:"sha256,omitempty"` // when it is known
	// Have is all bytes that are there; Unproven those of them that came in an answer
	// that was cut, so its signature could not be checked.
	Have       ranges `json:"have"`
	Unverified ranges `json:"unproven,omitempty"`
}

// fits reports whether what the part holds is of the file that st is of. The ETag is
// another one on another VM; the digest tells that it is the same file all the same.
func (j *journal) matches(remote string, st contract.FileStat) bool {
	if j.Remote != remote || j.SizeBytes != st.SizeBytes {
		return false
	}
	return j.ETag == st.ETag || j.SHA256 != "" && j.SHA256 == st.SHA256
}

// readJournal reads the journal at name in root.
func readJournal(root *os.Root, name string) (journal, error) {
	text, err := readOwn(root, name, maxJournal)
	if err != nil {
		return journal{}, err
	}
	return parseJournal(text)
}

// parseJournal refuses whatever save would not have written.
func parseJournal(text []byte) (journal, error) {
	var j journal
	if len(text) > maxJournal || json.Unmarshal(text, &j) != nil || j.Format != journalFormat {
		return journal{}, errNotOurs
	}
	sound := j.SizeBytes >= 0 && j.Have.valid(j.SizeBytes) && j.Unverified.valid(j.SizeBytes) &&
		len(j.Unverified.minus(j.Have)) == 0 && (j.SHA256 == "" || digestPattern.MatchString(j.SHA256))
	if !sound {
		return journal{}, errNotOurs
	}
	return j, nil
}

// save puts j into place at name in root.
func (j *journal) save(root *os.Root, name string) error { return saveOwn(root, name, j) }

func writeFile(root *os.Root, name string, from io.Reader) error {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}
