package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

const gib = 1 << 30

// transfers measures 1 GiB each way on loopback against plain net/http, which copies the
// same file from disk to disk and verifies nothing.
func transfers(ctx context.Context, b *bench) []row {
	e := b.executor(ctx, b.disk)
	m := b.mover(e, e.Ready.LocalURL, gib)
	plain := httptest.NewServer(http.HandlerFunc(m.servePlain))
	defer plain.Close()
	s := timing{n: 4, warmUps: 1}.inTurn(ctx,
		m.way("plain download", func(ctx context.Context) { m.plainDownload(ctx, plain.URL, false) }),
		m.way("synced plain download", func(ctx context.Context) { m.plainDownload(ctx, plain.URL, true) }),
		m.way("download", m.download),
		m.way("plain upload", func(ctx context.Context) { m.plainUpload(ctx, plain.URL) }),
		m.way("upload", m.upload))
	memory := harness.Must(harness.MemoryOf(e.PID()))
	return []row{
		rate("plain net/http, down", gib, s[0]),
		rate("plain net/http, down, and fsync", gib, s[1]).faster("plain net/http", s[1], s[0]),
		ratioAtLeast(rate("transfer.Download, which does fsync", gib, s[2]).faster("plain net/http", s[2], s[0]), 0.7),
		rate("plain net/http, up", gib, s[3]),
		ratioAtLeast(rate("transfer.Upload", gib, s[4]).faster("plain net/http", s[4], s[3]), 0.7),
		{what: "the executor's largest RSS", figure: fmt.Sprintf("%.0f MiB", memory.Peak)},
	}
}

// rate returns a row with the bytes a second of the median.
func rate(what string, size int64, s samples) row {
	return row{what: what, n: len(s), figure: fmt.Sprintf("%.0f MB/s", float64(size)/1e6/s.median().Seconds())}
}

// faster adds how many times the rate of base s has.
func (r row) faster(name string, s, base samples) row {
	r.ratio, r.against = base.over(s), name
	return r
}

// mover moves one file between a local folder and the executor's.
type mover struct {
	client        *client.Client
	local, remote string // folders
}

const (
	sourceName = "source.bin" // in both folders, the same bytes
	resultName = "result.bin"
)

// mover makes a file of size bytes in a new folder and in that of e, which answers at url.
func (b *bench) mover(e *harness.Executor, url string, size int) *mover {
	m := &mover{client: b.client(url), local: b.folder(b.disk), remote: e.Config.Dir}
	source := filepath.Join(m.local, sourceName)
	harness.Check(os.WriteFile(source, noise(size), 0o600))
	harness.Check(os.Link(source, filepath.Join(m.remote, sourceName)))
	return m
}

// way returns a way whose result is deleted afterwards. Then nothing is left to be written to
// the disk while the next one is measured.
func (m *mover) way(name string, do func(context.Context)) way {
	return way{name: name, do: do, after: func() {
		harness.Check(os.RemoveAll(filepath.Join(m.local, resultName)))
		harness.Check(os.RemoveAll(filepath.Join(m.remote, resultName)))
		harness.Check(exec.Command("sync").Run())
	}}
}

// download fetches a file whose etag is new, because the executor remembers digests.
func (m *mover) download(ctx context.Context) {
	harness.Check(os.Chtimes(filepath.Join(m.remote, sourceName), time.Time{}, time.Now()))
	harness.Must(transfer.Download(ctx, m.client, sourceName, transfer.Local{Dir: m.local, Name: resultName}, transfer.Options{}))
}

func (m *mover) upload(ctx context.Context) {
	harness.Must(transfer.Upload(ctx, m.client, filepath.Join(m.local, sourceName), resultName, transfer.Options{}))
}

// servePlain is the other end of plainDownload and plainUpload.
func (m *mover) servePlain(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut {
		http.ServeFile(w, r, filepath.Join(m.remote, sourceName))
		return
	}
	if err := harness.Try(func() { store(filepath.Join(m.remote, resultName), r.Body, false) }); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (m *mover) plainDownload(ctx context.Context, url string, synced bool) {
	req := harness.Must(http.NewRequestWithContext(ctx, http.MethodGet, url, nil))
	res := harness.Must(http.DefaultClient.Do(req))
	defer res.Body.Close()
	store(filepath.Join(m.local, resultName), res.Body, synced)
}

func (m *mover) plainUpload(ctx context.Context, url string) {
	f := harness.Must(os.Open(filepath.Join(m.local, sourceName)))
	req := harness.Must(http.NewRequestWithContext(ctx, http.MethodPut, url, f))
	req.ContentLength = gib
	res := harness.Must(http.DefaultClient.Do(req))
	defer res.Body.Close()
	harness.FailIf(res.StatusCode != http.StatusOK, "plain upload: %s", res.Status)
}

func store(path string, from io.Reader, synced bool) {
	f := harness.Must(os.Create(path))
	_, err := io.Copy(f, from)
	if err == nil && synced {
		err = f.Sync()
	}
	harness.Check(errors.Join(err, f.Close()))
}

const (
	farSize = 256 << 20
	farTrip = 100 * time.Millisecond
	// farPart is the size of the parts that are moved one after the other. It stays the
	// same when relay/transfer chooses others, so that ratios stay comparable.
	farPart = 4 << 20
)

// farTransfers compares transfers at a distance with moving parts one after the other.
func farTransfers(ctx context.Context, b *bench) []row {
	e := b.executor(ctx, b.disk)
	_, url := b.wire(e.Ready.LocalURL, farTrip)
	m := b.mover(e, url, farSize)
	s := timing{n: 3}.inTurn(ctx,
		m.way("parts down", m.partsDown), m.way("download", m.download),
		m.way("parts up", m.partsUp), m.way("upload", m.upload))
	return []row{
		rate("parts of 4 MiB one after the other, down", farSize, s[0]),
		ratioAtLeast(rate("transfer.Download", farSize, s[1]).faster("one stream of parts", s[1], s[0]), 5),
		rate("parts of 4 MiB one after the other, up", farSize, s[2]),
		ratioAtLeast(rate("transfer.Upload", farSize, s[3]).faster("one stream of parts", s[3], s[2]), 5),
	}
}

// partsDown downloads one part after the other.
func (m *mover) partsDown(ctx context.Context) {
	st := harness.Must(m.client.Stat(ctx, sourceName, false, 0))
	f := harness.Must(os.Create(filepath.Join(m.local, resultName)))
	defer f.Close()
	for offset := int64(0); offset < st.SizeBytes; offset += farPart {
		part := client.Part{Path: sourceName, ETag: st.ETag, Offset: offset}
		harness.Must(m.client.Content(ctx, part, farPart, f))
	}
}

// partsUp uploads one part after the other.
func (m *mover) partsUp(ctx context.Context) {
	f := harness.Must(os.Open(filepath.Join(m.local, sourceName)))
	defer f.Close()
	sum := sha256.New()
	size := harness.Must(io.Copy(sum, f))
	start := contract.UploadStart{Path: resultName, SizeBytes: size, Version: "1", Overwrite: true}
	u := harness.Must(m.client.StartUpload(ctx, start, 0))
	for offset := int64(0); offset < size; offset += farPart {
		part := contract.Range{Offset: offset, Length: min(farPart, size-offset)}
		harness.Check(m.client.PutPart(ctx, u.UploadID, f, part))
	}
	start.SHA256 = hex.EncodeToString(sum.Sum(nil))
	u = harness.Must(m.client.StartUpload(ctx, start, contract.MaxWait))
	harness.FailIf(u.Status != contract.UploadCommitted, "the upload is %s", u.Status)
}
