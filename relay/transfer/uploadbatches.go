package transfer

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"iter"
	"strconv"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

// batchBytes bounds a batch.
const batchBytes = partBytes

// batch sends small files in one request. A file that changed since it was hashed is sent
// on its own.
func (s *folderUpload) batch(ctx context.Context, files []candidate) error {
	answers, err := s.sendBatch(ctx, files)
	if client.Shrinks(err) {
		return s.splitBatch(ctx, files)
	}
	if err != nil {
		return err
	}
	for i, c := range files {
		switch a := answers[i]; {
		case a == nil || a.Error != nil && a.Error.Code == contract.CodeChanged:
			err = s.sendFile(ctx, c, false)
		case a.Error != nil:
			s.meter.finish(c.name)
			err = s.tally.add(ctx, strconv.Quote(c.name), fileResult{}, fmt.Errorf("uploading %q: %w", c.name, asLocal(a.Error)))
		default:
			err = s.recordArrived(ctx, c, *a)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// splitBatch sends the files of a batch that a proxy did not accept in smaller ones.
func (s *folderUpload) splitBatch(ctx context.Context, files []candidate) error {
	if len(files) == 1 {
		return s.sendFile(ctx, files[0], true)
	}
	for batch := range s.batches(files) {
		if err := s.batch(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// batches groups files so that each group makes one batch.
func (s *folderUpload) batches(files []candidate) iter.Seq[[]candidate] {
	most := min(batchBytes, s.client.MostBody())
	return groups(files, contract.MaxBatchFiles, most, func(c candidate) int64 { return c.size() + lineLen(c.name) })
}

// sendBatch returns the executor's answer about each file, nil if it was not sent.
func (s *folderUpload) sendBatch(ctx context.Context, files []candidate) ([]*contract.BatchedFile, error) {
	done, err := s.slot(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	body, m := make([]byte, 0, batchBytes), contract.Manifest{Path: s.target, Overwrite: s.options.Overwrite}
	var sent []int
	for i, c := range files {
		longer, ok := s.read(body, c)
		if !ok {
			continue
		}
		body, sent = longer, append(sent, i)
		m.Files = append(m.Files, contract.ManifestFile{Name: c.key, SizeBytes: c.size(), SHA256: c.record.SHA256, Replaces: s.options.replaces(c.replaces)})
	}
	out := make([]*contract.BatchedFile, len(files))
	if len(sent) == 0 {
		return out, nil
	}
	answers, err := s.putBatch(ctx, body, m)
	if err != nil {
		return nil, err
	}
	for k, i := range sent {
		out[i] = &answers[k]
	}
	return out, nil
}

func (j *job) putBatch(ctx context.Context, files []byte, m contract.Manifest) ([]contract.BatchedFile, error) {
	body, err := contract.AppendIndex(files, m)
	if err != nil {
		return nil, err
	}
	return j.client.PutBatch(ctx, body, len(m.Files))
}

// read appends a file's bytes to body if they still have its digest.
func (s *folderUpload) read(body []byte, c candidate) ([]byte, bool) {
	f, err := s.inRoot(s.root).open(c.name)
	if err != nil {
		return body, false
	}
	defer f.Close()
	if f.info.Size() != c.size() { // sendFile tells whether it only grew
		return body, false
	}
	at := len(body)
	longer := append(body, make([]byte, c.size())...)
	if _, err := io.ReadFull(f, longer[at:]); err != nil {
		return body, false
	}
	return longer, fmt.Sprintf("%x", sha256.Sum256(longer[at:])) == c.record.SHA256
}

// recordArrived counts and records a file of a batch that is on the VM.
func (s *folderUpload) recordArrived(ctx context.Context, c candidate, remote contract.BatchedFile) error {
	file := c.record
	file.ETag = remote.ETag
	s.sent.add(file)
	s.last.add(s.instance, remote.Path, file.SHA256, s.source(c).name)
	s.meter.moved.Add(c.size())
	s.meter.add(c.name, StageMoving, c.size())
	s.meter.finish(c.name)
	return s.tally.add(ctx, strconv.Quote(c.name), fileResult{path: remote.Path, size: c.size(), done: c.size(), replaced: c.earlier}, nil)
}

// makeFolders creates empty folders. The executor creates all others with their files.
func (s *folderUpload) makeFolders(ctx context.Context, folders []string) error {
	for group := range groups(folders, contract.MaxBatchFiles, batchBytes, lineLen) {
		m := contract.Manifest{Path: s.target}
		for _, folder := range group {
			m.Files = append(m.Files, contract.ManifestFile{Name: contract.EscapeName(folder) + "/"})
		}
		answers, err := s.putBatch(ctx, nil, m)
		if err != nil {
			return err
		}
		for k, a := range answers {
			if a.Error != nil {
				return fmt.Errorf("creating the folder %q: %w", m.Files[k].Name, a.Error)
			}
		}
	}
	return nil
}
