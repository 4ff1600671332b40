package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"colabrelay/relay/client"
	"colabrelay/relay/transfer"
	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

// BenchmarkTransfer measures 1 GiB each way on loopback. It alternates with plain net/http,
// which copies the same file from disk to disk without verification.
func BenchmarkTransfer(b *testing.B) {
	const size = 1 << 30
	e := startExecutor(b, harness.ExecutorConfig{})
	c := relayClient(b, e)
	dir := b.TempDir()
	local, remote := filepath.Join(dir, "local.bin"), filepath.Join(e.Config.Dir, "remote.bin")
	bigFile(b, local, size)
	if err := os.Link(local, remote); err != nil {
		b.Fatal(err)
	}
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			store(b, filepath.Join(dir, "put.bin"), r.Body)
			return
		}
		http.ServeFile(w, r, local)
	}))
	defer plain.Close()

	var down, plainDown, up, plainUp []time.Duration
	peak := 0.0
	for b.Loop() {
		n := len(down)
		plainDown = append(plainDown, timed(func() {
			res, err := http.Get(plain.URL)
			if err != nil {
				b.Fatal(err)
			}
			defer res.Body.Close()
			store(b, filepath.Join(dir, "got.bin"), res.Body)
		}))
		down = append(down, timed(func() {
			// The name differs each time. The executor caches the digest after the first.
			must(b, os.Chtimes(remote, time.Time{}, time.Now()))
			_, err := transfer.Download(b.Context(), c, "remote.bin", transfer.Local{Dir: dir, Name: fmt.Sprint("down", n)}, transfer.Options{})
			must(b, err)
		}))
		must(b, os.Remove(filepath.Join(dir, fmt.Sprint("down", n))))
		plainUp = append(plainUp, timed(func() {
			f, err := os.Open(local)
			must(b, err)
			req, err := http.NewRequest(http.MethodPut, plain.URL, f)
			must(b, err)
			req.ContentLength = size
			res, err := http.DefaultClient.Do(req)
			must(b, err)
			res.Body.Close()
		}))
		up = append(up, timed(func() {
			_, err := transfer.Upload(b.Context(), c, local, fmt.Sprint("up", n), transfer.Options{})
			must(b, err)
		}))
		must(b, os.Remove(filepath.Join(e.Config.Dir, fmt.Sprint("up", n))))
		peak = max(peak, residentMB(b, e.PID()))
	}
	for _, m := range []struct {
		name        string
		ours, plain []time.Duration
	}{{"down", down, plainDown}, {"up", up, plainUp}} {
		b.ReportMetric(size/1e3/p50(m.ours), m.name+"-MB/s")
		b.ReportMetric(p50(m.plain)/p50(m.ours), m.name+"/plain")
	}
	b.ReportMetric(peak, "executor-MB")
}

// BenchmarkTransferAtADistance compares a download at a round trip of 100 ms with
// requesting the same parts one after the other.
func BenchmarkTransferAtADistance(b *testing.B) {
	const size = 96 << 20
	e := startExecutor(b, harness.ExecutorConfig{})
	bigFile(b, filepath.Join(e.Config.Dir, "remote.bin"), size)
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	far := toxiproxy.NewProxy(api, "far", "127.0.0.1:0", strings.TrimPrefix(e.Ready.LocalURL, "http://"))
	must(b, far.Start())
	defer far.Stop()
	for _, way := range []string{"upstream", "downstream"} {
		_, err := far.Toxics.AddToxicJson(strings.NewReader(`{"name":"` + way + `","type":"latency","stream":"` + way + `","attributes":{"latency":50}}`))
		must(b, err)
	}
	key, err := auth.NewSecret(secret)
	must(b, err)
	c, err := client.New(client.Config{BaseURL: "http://" + far.Listen, Secret: key})
	must(b, err)
	dir := b.TempDir()
	var ours, single []time.Duration
	for b.Loop() {
		n := len(ours)
		ours = append(ours, timed(func() {
			_, err := transfer.Download(b.Context(), c, "remote.bin", transfer.Local{Dir: dir, Name: fmt.Sprint("down", n)}, transfer.Options{})
			must(b, err)
		}))
		single = append(single, timed(func() { oneByOne(b, c, size) }))
	}
	b.ReportMetric(size/1e3/p50(ours), "MB/s")
	b.ReportMetric(p50(single)/p50(ours), "of-one-stream")
}

// oneByOne reads a file one part at a time.
func oneByOne(b *testing.B, c *client.Client, size int64) {
	b.Helper()
	st, err := c.Stat(b.Context(), "remote.bin", false, 0)
	must(b, err)
	for offset := int64(0); offset < size; {
		n, err := c.Content(b.Context(), client.Part{Path: "remote.bin", ETag: st.ETag, Offset: offset}, contract.MaxFilePart/2, io.Discard)
		must(b, err)
		offset += n
	}
}

func store(b *testing.B, path string, from io.Reader) {
	b.Helper()
	f, err := os.Create(path)
	must(b, err)
	defer f.Close()
	_, err = io.Copy(f, from)
	must(b, err)
}

func must(b testing.TB, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
