package uploads

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"colabrelay/executor/files"
	"colabrelay/shared/contract"
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
	prefix  *prefixHash // identifies the part file that file is
	file    *os.File    // nil if all bytes of the upload had arrived before
	left    span        // of the part
	unsaved ranges      // written, but not yet in the journal
}

// put receives the bytes of s from body.
func (o *upload) put(s span, body io.Reader) (contract.Upload, error) {
	p, err := o.open(s)
	if err != nil {
		return contract.Upload{}, err
	}
	return p.close(p.receive(body))
}

func (o *upload) open(s span) (*incoming, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.dropped:
		return nil, ErrNoUpload
	case s.from < 0 || s.to < s.from || s.to > o.spec.SizeBytes:
		return nil, fmt.Errorf("%w: bytes %d to %d, size %d", files.ErrBadRange, s.from, s.to, o.spec.SizeBytes)
	case o.status != contract.UploadReceiving:
		return &incoming{upload: o, prefix: o.prefix, left: s}, nil
	}
	dir, f, err := o.openLocked(os.O_WRONLY)
	if err != nil {
		return nil, err
	}
	dir.Close()
	o.failure = nil
	return &incoming{upload: o, prefix: o.prefix, file: f, left: s}, nil
}

// receive reads and writes all of the part. It keeps what arrived before an error.
func (p *incoming) receive(body io.Reader) error {
	buf := newPiece()
	defer buf.free()
	for p.left.from < p.left.to {
		n, err := io.ReadFull(body, buf[:min(pieceBytes, p.left.to-p.left.from)])
		if err := p.write(buf[:n]); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: %d bytes of the part did not arrive", files.ErrBadRange, p.left.to-p.left.from)
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
	s := span{p.left.from, p.left.from + int64(len(data))}
	p.left.from = s.to
	switch {
	case p.dropped:
		return ErrNoUpload
	case p.replacedLocked():
		return files.ErrChanged
	case p.status != contract.UploadReceiving:
		return nil // all bytes have arrived
	}
	needed := p.got.missing(s)
	if len(p.got)+len(needed) > maxPieces {
		return fmt.Errorf("%w: more than %d pieces", files.ErrBadRange, maxPieces)
	}
	for _, w := range needed {
		n, err := p.file.WriteAt(data[w.from-s.from:w.to-s.from], w.from)
		w.to = w.from + int64(n)
		p.got, p.unsaved = p.got.add(w), p.unsaved.add(w)
		if err != nil {
			return files.WriteError(err)
		}
	}
	if p.unsaved.bytes() < saveBytes {
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
	for _, s := range p.unsaved {
		if err := p.journal.append(p.got, s); err != nil {
			return files.WriteError(err)
		}
	}
	p.unsaved = nil
	if p.got.prefix()-p.prefix.done.Load() >= saveBytes {
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
