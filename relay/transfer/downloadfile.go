package transfer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"golang.org/x/sync/errgroup"

	"colabrelay/relay/client"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
	"colabrelay/shared/diskspace"
	"colabrelay/shared/ranges"
)

// requestedFile is one remote file and its destination in a root.
type requestedFile struct {
	remote   string
	name     string             // with slashes
	lastStat *contract.FileStat // the executor's current description; nil to query it
	// content is the complete file that lastStat describes; nil to fetch it.
	content []byte
}

// downloadFile downloads one file, and restarts when the file changes.
func (j *job) downloadFile(ctx context.Context, root *os.Root, w requestedFile) (fileResult, error) {
	defer j.meter.finish(w.name)
	if err := makeFolder(root, path.Dir(w.name)); err != nil {
		return fileResult{path: absolute(root, w.name)}, err
	}
	unlock, err := j.records.lock(root, w.name)
	if err != nil {
		return fileResult{path: absolute(root, w.name)}, err
	}
	defer unlock()
	got, err := j.untilStable(ctx, "downloading "+plain.QuoteName(w.remote), w.name, func() (fileResult, error) {
		defer func() { w.lastStat, w.content = nil, nil }()
		return j.downloadOnce(ctx, root, w)
	})
	if errors.Is(err, ErrChanged) || errors.Is(err, ErrUnexpected) { // nobody can resume it
		part := partName(w.name)
		_, _ = root.Remove(part), root.Remove(part+journalSuffix)
	}
	if err == nil {
		keepExecutable(root, got.local, got.remote.File)
	}
	return got, err
}

// keepExecutable lets those execute a downloaded file who may read it, if its owner may do so on
// the VM.
func keepExecutable(root *os.Root, name string, remote contract.File) {
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || !remote.Executable || onWindows {
		return
	}
	mode := info.Mode().Perm()
	_ = root.Chmod(name, mode|mode&0o444>>2) // some file systems keep no modes
}

// download is one attempt to download one file.
type download struct {
	*job
	requestedFile
	root *os.Root
	stat contract.FileStat
	part *part
	note string // about the file's growth
}

func (j *job) downloadOnce(ctx context.Context, root *os.Root, w requestedFile) (fileResult, error) {
	st, err := j.statRequested(ctx, w)
	if err != nil {
		return fileResult{}, err
	}
	d := &download{job: j, requestedFile: w, root: root, stat: st}
	got := fileResult{path: absolute(root, w.name), size: st.SizeBytes, sha: st.SHA256, remote: st}
	existing := ""
	if names := j.alike(root, w.name, st.SizeBytes); len(names) > 0 {
		if got.sha, err = d.digest(ctx); isStale(err) {
			got.sha, _, err = d.digestOfBeginning(ctx, d.remote, st.SizeBytes)
		}
		if err == nil {
			existing, err = findSame(ctx, root, names, st.SizeBytes, got.sha)
		}
	}
	if err != nil {
		return got, err
	}
	if existing != "" {
		j.meter.add(w.name, StageMoving, st.SizeBytes)
		got.path, got.local = absolute(root, existing), existing
		got.done, got.skipped = st.SizeBytes, true
		return got, nil
	}
	if w.content != nil {
		return d.store(got)
	}
	return d.run(ctx, got)
}

// store writes a file of which all bytes are there, as an answer's signature says, and gives it its
// final name. It keeps no journal meanwhile: what a kill leaves is written again.
func (d *download) store(got fileResult) (_ fileResult, err error) {
	p, err := createPart(d.root, partName(d.name), d.remote, d.stat)
	if err != nil {
		return got, err
	}
	d.part = p
	defer func() {
		if p.file != nil { // there was an error
			_ = p.file.Close()
			_ = d.root.Remove(p.name)
		}
	}()
	n, err := p.file.Write(d.content)
	if err != nil {
		return got, fmt.Errorf("writing %q: %w", absolute(d.root, p.name), markDiskFull(err))
	}
	got.done = int64(n)
	d.meter.moved.Add(got.done)
	d.meter.add(d.name, StageMoving, got.done)
	return d.finish(got)
}

// statRequested returns the executor's description of a file. Anything but a regular file
// is ErrNotRegular.
func (j *job) statRequested(ctx context.Context, w requestedFile) (contract.FileStat, error) {
	st := contract.FileStat{}
	if w.lastStat != nil {
		st = *w.lastStat
	} else {
		var err error
		if st, err = j.client.Stat(ctx, w.remote, true, 0); err != nil {
			return st, err
		}
	}
	if st.IsDir || st.Special || st.ETag == "" {
		return st, ErrNotRegular
	}
	return st, j.options.Expect.check(st)
}

// digest waits for the remote file's SHA-256 and stores it in d.stat.
func (d *download) digest(ctx context.Context) (string, error) {
	sha, err := d.digestOf(ctx, d.remote, d.stat)
	if err == nil {
		d.stat.SHA256 = sha
	}
	return sha, err
}

// run fetches the missing bytes, verifies the file and gives it its final name.
func (d *download) run(ctx context.Context, got fileResult) (_ fileResult, err error) {
	p, err := openPart(d.root, partName(d.name), d.remote, d.stat, func(etag string) bool {
		_, err := d.client.Prefix(ctx, d.remote, etag, 0, 0)
		return err == nil
	})
	if err != nil {
		return got, err
	}
	d.part = p
	defer func() { err = errors.Join(err, p.close()) }()
	got.resumed = p.Total()
	d.meter.add(d.name, StageMoving, got.resumed)
	err = d.fetchVerified(ctx)
	got.done, got.sha, got.note = p.Total(), d.stat.SHA256, d.note
	if errors.Is(err, ErrLocalDisk) {
		err = fmt.Errorf("%w; %d of %d bytes are still missing", err, p.Missing().Total(), d.stat.SizeBytes)
	}
	if err != nil {
		return got, err
	}
	return d.finish(got)
}

// finish gives the complete part its final name.
func (d *download) finish(got fileResult) (fileResult, error) {
	final, err := d.part.finish(d.name, d.stat, d.options.Overwrite)
	if err != nil {
		return got, err
	}
	got.path, got.local = absolute(d.root, final), final
	return got, nil
}

// fetchVerified fetches the missing bytes. If the complete file does not have the digest
// that the executor computed, the file changed, or the disk lost bytes of an earlier call:
// all bytes are dropped and the error is errStale.
func (d *download) fetchVerified(ctx context.Context) error {
	if err := d.checkSpace(); err != nil {
		return err
	}
	if err := d.fetchAll(ctx); err != nil {
		return err
	}
	same, err := d.verify(ctx)
	if same || err != nil {
		return err
	}
	d.meter.add(d.name, StageMoving, -d.part.Lose())
	return errStale
}

// fetchAll fetches the missing bytes. At the same time it waits for the executor's digest, which
// it does without if the file changes.
func (d *download) fetchAll(ctx context.Context) error {
	g, inner := errgroup.WithContext(ctx)
	g.Go(func() error {
		sha, err := d.digest(inner)
		if err == nil {
			err = d.options.Expect.check(d.stat)
		}
		if err == nil {
			d.part.setDigest(sha)
		}
		if isStale(err) { // if the file only grew, the parts arrive nevertheless
			err = nil
		}
		return err
	})
	g.Go(func() error { return d.moveParts(inner, d.part.Missing(), d.fetchPart) })
	err := g.Wait()
	if isStale(err) {
		return errStale
	}
	return err
}

func isStale(err error) bool {
	return errors.Is(err, errStale) || refusalCode(err) == contract.CodeChanged
}

// fetchPart is the partFunc of a download. What arrived before an error is kept.
func (d *download) fetchPart(ctx context.Context, piece contract.Range, _ bool) (ranges.Set, error) {
	w := &pieceWriter{download: d, rest: piece}
	_, err := d.client.Content(ctx, client.Part{Path: d.remote, ETag: d.stat.ETag, Offset: piece.Offset}, piece.Length, w)
	if err == nil && w.rest == piece {
		err = errStale // shorter than the file with this ETag
	}
	return ranges.Set(nil).Add(w.rest), err
}

// pieceWriter writes a piece of the file to the part file as it arrives.
type pieceWriter struct {
	*download
	rest contract.Range // of the piece
}

// Write implements io.Writer. relay/client writes no more bytes than the piece has.
func (w *pieceWriter) Write(b []byte) (int, error) {
	if err := w.part.write(w.rest.Offset, b); err != nil {
		return 0, err
	}
	n := int64(len(b))
	w.rest = w.rest.After(n)
	w.meter.moved.Add(n)
	w.meter.add(w.name, StageMoving, n)
	return len(b), nil
}

// verify hashes the rest of the file on disk and compares the digest of the whole file. If the
// file grew, the executor computes that of its beginning now, after the last byte was read there:
// bytes that were equal then and now did not change in between, so they are one state of the file.
func (d *download) verify(ctx context.Context) (bool, error) {
	d.meter.add(d.name, StageChecking, 0)
	sum, err := d.part.Sum(ctx, d.part.file, d.meter.checker(d.name, StageChecking))
	length := d.stat.SizeBytes
	switch {
	case err != nil:
	case d.stat.SHA256 == "":
		d.stat.SHA256, length, err = d.digestOfBeginning(ctx, d.remote, d.stat.SizeBytes)
		if err == nil {
			err = d.options.Expect.check(d.stat)
		}
	case time.Since(d.stat.Modified) < stillWritten:
		if now, err := d.client.Stat(ctx, d.remote, false, 0); err == nil {
			length = now.SizeBytes
		}
	}
	if length > d.stat.SizeBytes {
		d.note = grownNote(plain.QuoteName(d.remote), "download", d.stat.SizeBytes)
	}
	return sum == d.stat.SHA256, err
}

// stillWritten is how old a file's last change must be at least so that nobody asks whether it grew
// after its digest was known.
const stillWritten = time.Minute

// grownNote says what the copy of a file is that became longer during a transfer.
func grownNote(quoted, transfer string, size int64) string {
	return fmt.Sprintf("%s grew during the %s: the copy has its first %d bytes, all that it had at the start", quoted, transfer, size)
}

// checkSpace fails early if the disk cannot hold the missing bytes.
func (d *download) checkSpace() error {
	need := d.part.Missing().Total()
	space, known := diskspace.Of(d.root.Name())
	if !known || need <= space.Free {
		return nil
	}
	return fmt.Errorf("%w: %q needs %d more bytes in %q, which is %d more than are free", ErrLocalDisk, d.name, need, d.root.Name(), need-space.Free)
}
