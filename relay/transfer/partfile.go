package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
	"colabrelay/shared/partfile"
	"colabrelay/shared/ranges"
)

// part is an unfinished file with its journal, which records the bytes that the file has.
// Both stay until the file is complete.
type part struct {
	root *os.Root
	name string // of the part file in root
	file *os.File
	*partfile.Received

	mu      sync.Mutex
	journal journal
}

// openPart opens the part file called name. It keeps the bytes in it that are of the same remote
// file, also if that grew since it had the ETag that grew is called with.
func openPart(root *os.Root, name, remote string, st contract.FileStat, grew func(etag string) bool) (*part, error) {
	p := &part{root: root, name: name}
	found, err := readJournal(root, p.journalName())
	if err == nil {
		p.journal = found
	} else if !errors.Is(err, errNotOurs) && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading %q: %w", absolute(root, p.journalName()), err)
	}
	if info, err := root.Lstat(name); err != nil || !info.Mode().IsRegular() {
		p.journal.Received = nil
	}
	if p.journal.mayBeOf(remote, st) && grew(p.journal.ETag) {
		p.journal.ETag, p.journal.SizeBytes = st.ETag, st.SizeBytes
	}
	if err := p.open(remote, st); err != nil {
		return nil, err
	}
	return p, nil
}

// createPart creates an empty part file called name, in place of any earlier one.
func createPart(root *os.Root, name, remote string, st contract.FileStat) (*part, error) {
	p := &part{root: root, name: name, journal: journal{Format: journalFormat, Remote: remote, ETag: st.ETag, SizeBytes: st.SizeBytes, SHA256: st.SHA256}}
	for _, old := range []string{p.journalName(), name} {
		if err := root.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("removing %q: %w", absolute(root, old), err)
		}
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening %q: %w", absolute(root, name), markDiskFull(err))
	}
	p.file = f
	return p, nil
}

func (p *part) journalName() string { return p.name + journalSuffix }

func (p *part) save(received ranges.Set) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.journal.Received = received
	return saveOwn(p.root, p.journalName(), &p.journal)
}

// open opens the file. Its bytes count only if the journal matches the remote file.
func (p *part) open(remote string, st contract.FileStat) error {
	if !p.journal.matches(remote, st) {
		p.journal.Received = nil
	}
	p.journal.Format, p.journal.Remote = journalFormat, remote
	p.journal.ETag, p.journal.SizeBytes, p.journal.SHA256 = st.ETag, st.SizeBytes, st.SHA256
	if err := p.save(p.journal.Received); err != nil {
		return err
	}
	if len(p.journal.Received) == 0 {
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
		return errors.Join(fmt.Errorf("inspecting %q: %w", f.Name(), err), f.Close())
	}
	// A power cut loses bytes that the journal lists. Bytes beyond those in the journal
	// cannot be attributed to anything.
	onDisk := contract.Range{Length: info.Size()}
	kept := p.journal.Received.Within(onDisk)
	p.Received = partfile.NewReceived(st.SizeBytes, kept, p.save)
	if err := f.Truncate(kept.End()); err != nil {
		return errors.Join(fmt.Errorf("truncating %q: %w", f.Name(), err), f.Close())
	}
	return nil
}

// write stores bytes of the file at offset.
func (p *part) write(offset int64, b []byte) error {
	if err := p.Write(p.file, offset, b); err != nil {
		return fmt.Errorf("writing %q: %w", absolute(p.root, p.name), markDiskFull(err))
	}
	return nil
}

func (p *part) setDigest(sha string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.journal.SHA256 = sha
}

// close saves the journal and keeps both files for the next call.
func (p *part) close() error {
	if p.file == nil {
		return nil
	}
	have := p.Missing().Missing(contract.Range{Length: p.journal.SizeBytes}) // the digest may be new even if no byte is
	err := errors.Join(p.save(have), p.file.Close())
	p.file = nil
	return err
}

// finish syncs the complete file and gives it its modification time and its final name.
// The journal is removed first: a kill after that leaves a part that nothing claims, and
// a kill before it costs one more verification. In the opposite order, the part could be
// a second name of the finished file, and the next download would write to it.
func (p *part) finish(name string, st contract.FileStat, overwrite bool) (string, error) {
	// Syncing pieces of a large file while others arrive takes longer in all, because the
	// file system holds up writes meanwhile.
	if err := p.file.Sync(); err != nil {
		return "", fmt.Errorf("writing %q: %w", absolute(p.root, p.name), markDiskFull(err))
	}
	if err := p.file.Close(); err != nil {
		return "", fmt.Errorf("writing %q: %w", absolute(p.root, p.name), markDiskFull(err))
	}
	p.file = nil
	if !st.Modified.IsZero() {
		// Not every file system can store the time.
		_ = p.root.Chtimes(p.name, st.Modified, st.Modified)
	}
	if err := p.root.Remove(p.journalName()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("removing %q: %w", absolute(p.root, p.journalName()), err)
	}
	final, err := place(p.root, p.name, name, overwrite)
	if err != nil {
		return "", errors.Join(
			fmt.Errorf("naming %q: %w", absolute(p.root, name), markDiskFull(err)), p.save(ranges.Set(nil).Add(contract.Range{Length: st.SizeBytes})))
	}
	return final, nil
}

// partFunc transfers one piece of a file, at most contract.MaxFilePart long, in one
// attempt. It returns what is left of the piece, with or without an error. again says that
// an earlier attempt at the same piece was interrupted.
type partFunc func(ctx context.Context, piece contract.Range, again bool) (left ranges.Set, err error)

// moveParts transfers all of todo, up to inFlight pieces of the job at the same time.
// Interrupted pieces are resumed as long as bytes of any piece arrive, and for client.Patience
// after the last; any other error ends all of them.
func (j *job) moveParts(ctx context.Context, todo ranges.Set, transfer partFunc) error {
	q := &queue{left: todo}
	g, ctx := errgroup.WithContext(ctx)
	for range min(int64(inFlight), todo.Total()/partBytes+int64(len(todo))) {
		g.Go(func() error {
			for {
				piece, ok := q.next()
				if !ok || ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err := j.movePiece(ctx, piece, transfer); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// movePiece transfers a piece until nothing of it is left.
func (j *job) movePiece(ctx context.Context, piece contract.Range, transfer partFunc) error {
	done, err := j.slot(ctx)
	if err != nil {
		return err
	}
	defer done()
	pause := client.NewBackOff()
	again := false
	for left := (ranges.Set{piece}); len(left) > 0; {
		first, rest := left.Front(contract.MaxFilePart)
		unsent, err := transfer(ctx, first, again)
		if err != nil && !client.Transient(err) {
			return err
		}
		if unsent.Total() < first.Length {
			pause.Reset()
			j.silence.End()
		} else if err != nil && j.silence.Failed() >= client.Patience {
			return fmt.Errorf("%w: %w", ErrSilent, err)
		}
		for _, r := range unsent {
			rest = rest.Add(r)
		}
		left, again = rest, err != nil
		if err == nil {
			continue
		}
		select {
		case <-time.After(pause.NextBackOff()):
		case <-ctx.Done():
			return err
		}
	}
	return nil
}

// queue hands out pieces in order.
type queue struct {
	mu   sync.Mutex
	left ranges.Set
}

func (q *queue) next() (contract.Range, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.left) == 0 {
		return contract.Range{}, false
	}
	// The last pieces are smaller, so that all workers end at about the same time.
	size := int64(partBytes)
	if q.left.Total() > inFlight*partBytes {
		size = contract.MaxFilePart
	}
	var piece contract.Range
	piece, q.left = q.left.Front(size)
	return piece, true
}
