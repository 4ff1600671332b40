package history

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// ErrNotFound: the history has no such run, or no longer.
var ErrNotFound = errors.New("no such run in the history")

// Run is one run in the history. Every text in it comes from an executor or from the run's
// code: plain cleans it for a terminal.
type Run struct {
	// Execution is the run as last answered, without events and traceback. Its code preview
	// is that of the executor.
	contract.Execution
	Runtime    string    // the name of the pairing
	InstanceID string    // of the VM
	Recorded   time.Time // when it was submitted, by this laptop's clock
	// Internal marks a run of the relay's own code, such as a round of a chunked run. Its Code
	// is only the first line.
	Internal bool
	Name     string // of the code, such as its file's; may be empty
	Code     string
	CodeCut  bool // the code was too long for the history: Code is its beginning

	key string
}

// List returns all runs, newest first. It skips files that cannot be read, and logs the first.
func (s *Store) List() ([]Run, error) {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the history: %w", err)
	}
	runs := []Run{}
	for _, e := range entries {
		key, ok := strings.CutSuffix(e.Name(), headSuffix)
		if !ok || !keyPattern.MatchString(key) {
			continue
		}
		run, err := summary(s.cfg.Dir, key)
		if err != nil {
			s.unreadable.do(func() {
				s.cfg.Log.Warn("a run of the history cannot be read; its files stay as they are", "file", e.Name(), "err", err)
			})
			continue
		}
		runs = append(runs, run)
	}
	sort.SliceStable(runs, func(i, j int) bool { return runs[i].Recorded.After(runs[j].Recorded) })
	return runs, nil
}

// Get returns the run with that execution id, or ErrNotFound. Of several, which only a false
// executor causes, it returns the newest.
func (s *Store) Get(id string) (Run, error) {
	runs, err := s.List()
	if err != nil {
		return Run{}, err
	}
	for _, run := range runs {
		if run.ExecutionID == id {
			return run, nil
		}
	}
	return Run{}, fmt.Errorf("%w: %.80q", ErrNotFound, id)
}

// Events returns the kept events of a run in order. A gap with a Cut stands for events that
// are missing from the history.
func (s *Store) Events(run Run) ([]contract.Event, error) {
	found, err := read(s.cfg.Dir, run.key)
	if err != nil {
		return nil, fmt.Errorf("read the run %q in the history: %w", run.ExecutionID, err)
	}
	return found.ordered(), nil
}

// Fetch returns a function that writes a payload of the run that was kept. It returns
// ErrNotFound for one that was not.
func (s *Store) Fetch(run Run) func(ctx context.Context, blob contract.Blob, w io.Writer) error {
	return func(_ context.Context, blob contract.Blob, w io.Writer) error {
		if !contract.SHA256Pattern.MatchString(blob.SHA256) {
			return ErrNotFound
		}
		content, err := bounded.ReadFile(blobPath(s.cfg.Dir, run.key, blob.SHA256), contract.MaxBlobPart)
		sum := sha256.Sum256(content)
		if err != nil || hex.EncodeToString(sum[:]) != blob.SHA256 { // a kill may have cut the file
			return ErrNotFound
		}
		_, err = w.Write(content)
		return err
	}
}

func blobPath(dir, key, sum string) string { return filepath.Join(dir, key+"."+sum+blobSuffix) }
