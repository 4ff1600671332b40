package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"colabrelay/relay/client"
	"colabrelay/shared/contract"
)

const (
	farSize = 256 << 20
	farTrip = 100 * time.Millisecond
	// farPart is the size of the parts that are moved one after the other. It stays the
	// same when relay/transfer chooses others, so that ratios stay comparable.
	farPart = 4 << 20
)

// farTransfers compares transfers at a distance with moving parts one after the other.
func farTransfers(ctx context.Context, b *bench) ([]row, error) {
	e, err := b.executor(ctx, b.disk)
	if err != nil {
		return nil, err
	}
	_, url, err := b.wire(e.Ready.LocalURL, farTrip)
	if err != nil {
		return nil, err
	}
	m, err := b.mover(e, url, farSize)
	if err != nil {
		return nil, err
	}
	s, err := timing{n: 3}.inTurn(ctx,
		m.way("parts down", m.partsDown), m.way("download", m.download),
		m.way("parts up", m.partsUp), m.way("upload", m.upload))
	if err != nil {
		return nil, err
	}
	return []row{
		rate("parts of 4 MiB one after the other, down", farSize, s[0]),
		ratioAtLeast(rate("transfer.Download", farSize, s[1]).faster("one stream of parts", s[1], s[0]), 5),
		rate("parts of 4 MiB one after the other, up", farSize, s[2]),
		ratioAtLeast(rate("transfer.Upload", farSize, s[3]).faster("one stream of parts", s[3], s[2]), 5),
	}, nil
}

// partsDown downloads one part after the other.
func (m *mover) partsDown(ctx context.Context) error {
	st, err := m.client.Stat(ctx, sourceName, false, 0)
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(m.local, resultName))
	if err != nil {
		return err
	}
	defer f.Close()
	for offset := int64(0); offset < st.SizeBytes; offset += farPart {
		part := client.Part{Path: sourceName, ETag: st.ETag, Offset: offset}
		if _, err := m.client.Content(ctx, part, farPart, f); err != nil {
			return err
		}
	}
	return nil
}

// partsUp uploads one part after the other.
func (m *mover) partsUp(ctx context.Context) error {
	f, err := os.Open(filepath.Join(m.local, sourceName))
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return err
	}
	start := contract.UploadStart{Path: resultName, SizeBytes: size, Version: "1", Overwrite: true}
	u, err := m.client.StartUpload(ctx, start)
	if err != nil {
		return err
	}
	for offset := int64(0); offset < size; offset += farPart {
		part := contract.Range{Offset: offset, Length: min(farPart, size-offset)}
		if _, err := m.client.PutPart(ctx, u.UploadID, f, part); err != nil {
			return err
		}
	}
	return m.commit(ctx, u.UploadID, hex.EncodeToString(sum.Sum(nil)))
}

func (m *mover) commit(ctx context.Context, id, sum string) error {
	u, err := m.client.CommitUpload(ctx, id, sum, contract.MaxWait)
	if err == nil && u.Status != contract.UploadCommitted {
		err = fmt.Errorf("the upload is %s", u.Status)
	}
	return err
}
