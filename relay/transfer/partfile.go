package transfer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

// part is a file that is on its way, beside the journal of what it holds. Both stay
// until the file is whole.
type part struct {
	root *os.Root
	name string // of the part file in root
	file *os.File

	mu      sync.Mutex
	journal journal
	grown   chan struct{} // holds one after something came
}

// maxForeign is how many part names that others took are passed over.
const maxTakenNames = 20

// openPart opens the part file called name, or the first numbered name where what is
// there is not ours, and goes on with what it holds where that is of the same remote
// file.
func openPart(root *os.Root, name, remote string, st contract.FileStat) (*part, error) {
	for i := 0; i <= maxTakenNames; i++ {
		p := &part{root: root, name: filename.Numbered(name, i), grown: make(chan struct{}, 1)}
		if ours, err := p.claim(); err != nil {
			return nil, err
		} else if !ours {
			continue
		}
		if err := p.open(remote, st); err != nil {
			return nil, err
		}
		return p, nil
	}
	return nil, fmt.Errorf("%q and its numbered names belong to others: move them away", absolute(root, name))
}

func (p *part) journalName() string { return p.name + journalSuffix }

// claim reports whether the name is ours to use: nothing is there, or what an earlier
// download left. The journal is always made first, so a part without one is a user's.
func (p *part) claim() (bool, error) {
	found, err := readJournal(p.root, p.journalName())
	switch {
	case err == nil:
		p.journal = found
	case errors.Is(err, errNotOurs):
		return false, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("reading %q: %w", absolute(p.root, p.journalName()), err)
	}
	info, statErr := p.root.Lstat(p.name)
	switch {
	case errors.Is(statErr, fs.ErrNotExist):
		p.journal.Have, p.journal.Unverified = nil, nil
		return true, nil
	case statErr != nil:
		return false, fmt.Errorf("looking at %q: %w", absolute(p.root, p.name), statErr)
	}
	return err == nil && info.Mode().IsRegular(), nil
}

// begin opens the file. What it holds counts only where the journal fits.
func (p *part) open(remote string, st contract.FileStat) error {
	if !p.journal.matches(remote, st) {
		p.journal.Have, p.journal.Unverified = nil, nil
	}
	p.journal.Format, p.journal.Remote = journalFormat, remote
	p.journal.ETag, p.journal.SizeBytes, p.journal.SHA256 = st.ETag, st.SizeBytes, st.SHA256
	if err := p.journal.save(p.root, p.journalName()); err != nil {
		return err
	}
	if len(p.journal.Have) == 0 {
		if err := p.root.Remove(p.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing %q: %w", absolute(p.root, p.name), err)
		}
	}
	f, err := p.root.OpenFile(p.name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("opening %q: %w", absolute(p.root, p.name), markDiskFull(err))
	}
	p.file = f
	info, err := f.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("looking at %q: %w", f.Name(), err), f.Close())
	}
	// What the journal promises past the file's end was lost in a power cut; what the
	// file holds past the journal's end is nobody's.
	there := contract.Range{Length: info.Size()}
	p.journal.Have, p.journal.Unverified = p.journal.Have.within(there), p.journal.Unverified.within(there)
	if err := f.Truncate(p.journal.Have.last()); err != nil {
		return errors.Join(fmt.Errorf("cutting %q: %w", f.Name(), err), f.Close())
	}
	return nil
}

// write keeps what came of the file at offset.
func (p *part) write(offset int64, b []byte, proven bool) error {
	if _, err := p.file.WriteAt(b, offset); err != nil {
		return fmt.Errorf("writing %q: %w", absolute(p.root, p.name), markDiskFull(err))
	}
	piece := contract.Range{Offset: offset, Length: int64(len(b))}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.journal.Have = p.journal.Have.add(piece)
	p.journal.Unverified = p.journal.Unverified.without(piece)
	if !proven {
		p.journal.Unverified = p.journal.Unverified.add(piece)
	}
	select {
	case p.grown <- struct{}{}:
	default:
	}
	if p.journal.Have.total() == p.journal.SizeBytes {
		return nil // the journal is about to go: a small file never needs a second one
	}
	return p.journal.save(p.root, p.journalName())
}

// learn notes the whole file's digest.
func (p *part) setDigest(sha string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.journal.SHA256 = sha
}

// have is how many bytes are there.
func (p *part) received() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.journal.Have.total()
}

// missing is what has not come.
func (p *part) missing() ranges {
	p.mu.Lock()
	defer p.mu.Unlock()
	return whole(p.journal.SizeBytes).minus(p.journal.Have)
}

// doubt forgets what was not proven and says how much that was.
func (p *part) dropUnverified() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.journal.Unverified.total()
	p.journal.Have, p.journal.Unverified = p.journal.Have.minus(p.journal.Unverified), nil
	return n
}

// forget drops all that came: it is of no use.
func (p *part) dropAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.journal.Have, p.journal.Unverified = nil, nil
}

// begun is how many bytes are there from the file's first one on.
func (p *part) contiguous() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.journal.Have) == 0 || p.journal.Have[0].Offset > 0 {
		return 0
	}
	return p.journal.Have[0].Length
}

// close leaves file and journal as they are, for the next call.
func (p *part) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file == nil {
		return nil
	}
	err := errors.Join(p.journal.save(p.root, p.journalName()), p.file.Close())
	p.file = nil
	return err
}

// finish syncs the whole file, gives it its time and its name. The journal goes first:
// a kill after it leaves a part that nobody claims, one before it nothing worse than
// a second look. The other way round a part that is the finished file under a second
// name could be taken for one to write to.
func (p *part) finish(name string, st contract.FileStat, overwrite bool) (string, error) {
	if err := p.file.Sync(); err != nil {
		return "", fmt.Errorf("writing %q: %w", absolute(p.root, p.name), markDiskFull(err))
	}
	if err := p.file.Close(); err != nil {
		return "", fmt.Errorf("writing %q: %w", absolute(p.root, p.name), markDiskFull(err))
	}
	p.file = nil
	if !st.Modified.IsZero() {
		// A file system that can't keep the time is no reason to lose the file.
		_ = p.root.Chtimes(p.name, st.Modified, st.Modified)
	}
	if err := p.root.Remove(p.journalName()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("removing %q: %w", absolute(p.root, p.journalName()), err)
	}
	final, err := place(p.root, p.name, name, overwrite)
	if err != nil {
		return "", errors.Join(
			fmt.Errorf("naming %q: %w", absolute(p.root, name), markDiskFull(err)), p.journal.save(p.root, p.journalName()))
	}
	return final, nil
}
