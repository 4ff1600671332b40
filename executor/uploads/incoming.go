package uploads

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
	"colabrelay/shared/ranges"
)

const (
	pieceBytes = 64 << 10 // bytes of one read and write
	// saveBytes is how many bytes of a part may arrive before the journal records them. A
	// killed executor loses at most these of each part.
	saveBytes = 1 << 20
)

// piece is a buffer for some bytes of a file. A pool keeps the buffers, because every part
// needs one.
type piece [pieceBytes]byte

var pieces = sync.Pool{New: func() any { return new(piece) }}

func newPiece() *piece { return pieces.Get().(*piece) }
func (p *piece) free() { pieces.Put(p) }

// incoming is a part that is being received. The upload is locked only while a piece is
// written, so that parts arrive side by side. Meanwhile it may be dropped, restarted or
// committed, by a sender that sent these bytes twice: each piece checks that first, and
// never writes into a file that is complete.
type incoming struct {
	*upload
	prefix  *prefixHash    // identifies the part file that file is
	file    *os.File       // nil if all bytes of the upload had arrived before
	left    contract.Range // of the part
	unsaved ranges.Set     // written, but not yet in the journal
}

// put receives the bytes of r from body.
func (o *upload) put(r contract.Range, body io.Reader) (contract.Upload, error) {
	p, err := o.open(r)
	if err != nil {
		return contract.Upload{}, err
	}
	return p.close(p.receive(body))
}

func (o *upload) open(r contract.Range) (*incoming, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.dropped:
		return nil, ErrNoUpload
	case r.Offset < 0 || r.Length < 0 || r.Length > o.spec.SizeBytes || r.Offset > o.spec.SizeBytes-r.Length:
		return nil, fmt.Errorf("%w: offset %d, length %d, size %d", files.ErrBadRange, r.Offset, r.Length, o.spec.SizeBytes)
	case o.status != contract.UploadReceiving:
		return &incoming{upload: o, prefix: o.prefix, left: r}, nil
	}
	dir, f, err := o.openLocked(os.O_WRONLY)
	if err != nil {
		return nil, err
	}
	dir.Close()
	o.failure = nil
	return &incoming{upload: o, prefix: o.prefix, file: f, left: r}, nil
}

// receive reads and writes all of the part. It keeps what arrived before an error.
func (p *incoming) receive(body io.Reader) error {
	buf := newPiece()
	defer buf.free()
	for p.left.Length > 0 {
		n, err := io.ReadFull(body, buf[:min(pieceBytes, p.left.Length)])
		if err := p.write(buf[:n]); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: %d bytes of the part did not arrive", files.ErrBadRange, p.left.Length)
		}
		if err != nil {
			return err
		}
	}
	switch _, err := io.ReadFull(body, buf[:1]); {
	case err == nil:
		return fmt.Errorf("%w: the part is longer than announced", files.ErrBadRange)
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

// write writes the bytes of data that have not arrived before, and records them.
func (p *incoming) write(data []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := contract.Range{Offset: p.left.Offset, Length: int64(len(data))}
	p.left = p.left.After(r.Length)
	switch {
	case p.dropped:
		return ErrNoUpload
	case p.replacedLocked():
		return files.ErrChanged
	case p.status != contract.UploadReceiving:
		return nil // all bytes have arrived
	}
	needed := p.got.Missing(r)
	if len(p.got)+len(needed) > maxPieces {
		return fmt.Errorf("%w: more than %d pieces", files.ErrBadRange, maxPieces)
	}
	for _, w := range needed {
		n, err := p.file.WriteAt(data[w.Offset-r.Offset:w.End()-r.Offset], w.Offset)
		w.Length = int64(n)
		p.got, p.unsaved = p.got.Add(w), p.unsaved.Add(w)
		if err != nil {
			return files.WriteError(err)
		}
	}
	if p.unsaved.Total() < saveBytes {
		return nil
	}
	return p.saveLocked()
}

// replacedLocked reports whether the upload got a new part file since this part was opened.
func (p *incoming) replacedLocked() bool { return p.upload.prefix != p.prefix }

// saveLocked records in the journal what was written, and has it hashed.
func (p *incoming) saveLocked() error {
	if len(p.unsaved) == 0 || p.dropped || p.replacedLocked() || p.status == contract.UploadCommitted {
		return nil
	}
	if err := p.journal.restoreIfDeleted(p.record, p.got); err != nil {
		return files.WriteError(err)
	}
	for _, r := range p.unsaved {
		if err := p.journal.append(p.got, r); err != nil {
			return files.WriteError(err)
		}
	}
	p.unsaved = nil
	if p.got.Prefix()-p.prefix.Progress().HashedBytes >= saveBytes {
		p.enqueueLocked()
	}
	return nil
}

// close ends the part, with err from receive. Some file systems report only when a file is
// closed that they are full, and not which bytes they lost: then the upload starts again.
func (p *incoming) close(err error) (contract.Upload, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file != nil {
		if closeErr := p.file.Close(); closeErr != nil && !p.dropped && !p.replacedLocked() && p.status == contract.UploadReceiving {
			return contract.Upload{}, errors.Join(files.WriteError(closeErr), p.restartLocked())
		}
	}
	if saveErr := p.saveLocked(); err == nil {
		err = saveErr
	}
	if err == nil && p.dropped {
		err = ErrNoUpload
	}
	if err != nil {
		return contract.Upload{}, err
	}
	return p.answerLocked(), nil
}
