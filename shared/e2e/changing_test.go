package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

const changingBytes = 12 << 20

// changing is a file on the VM that is written anew while it is downloaded through a slow line.
// Each version consists of one byte that is repeated.
type changing struct {
	t    *testing.T
	path string // on the VM
	dir  string // for downloads
	host *harness.Host
	line *harness.Wire
	last byte
}

// change writes the next version, in turn over the last one and as a file that replaces it.
func (c *changing) change() {
	c.last++
	path := c.path
	if c.last%2 == 1 {
		path += ".new"
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	must(c.t, err)
	defer f.Close()
	_, err = f.Write(bytes.Repeat([]byte{c.last}, changingBytes))
	must(c.t, err)
	if path != c.path {
		must(c.t, os.Rename(path, c.path))
	}
}

// download calls the tool until it is done, and changes the file so many times, as soon as each
// further megabyte has passed. It returns the number of requests, too.
func (c *changing) download(name string, times int) (harness.Answer, int64) {
	c.t.Helper()
	answered := make(chan harness.Answer, 1)
	c.line.CutAt()
	go func() {
		a := harness.Answer{Fields: map[string]any{"can_continue": true}}
		var err error
		for a.Fields["can_continue"] == true && err == nil {
			a, err = c.host.Call(within(c.t, time.Minute), "download_from_colab", map[string]any{"remote_path": "model.bin", "local_filename": name})
		}
		if err != nil {
			c.t.Error(err)
		}
		answered <- a
	}()
	every := time.NewTicker(2 * time.Millisecond)
	defer every.Stop()
	for done := 0; ; {
		select {
		case a := <-answered:
			if done < times {
				c.t.Errorf("the file changed %d times only", done)
			}
			return a, c.line.Traffic().Requests
		case <-every.C:
			if _, down, _ := c.line.Passed(); done < times && down > int64(done)<<20 {
				c.change()
				done++
			}
		}
	}
}

// whole checks that a download is one version that the file had since from.
func (c *changing) whole(name string, from byte) {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil || len(text) != changingBytes || text[0] < from || !bytes.Equal(text, bytes.Repeat(text[:1], changingBytes)) {
		c.t.Errorf("%s: %d bytes came that are none of the file's versions, %v", name, len(text), err)
	}
}

// What arrives of a file that changes meanwhile is one of its versions, whole.
func TestAFileThatChangesWhileItIsDownloaded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := borrowExecutor(t, stacks.Old(t))
	slow := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "slow", "127.0.0.1:0", strings.TrimPrefix(e.Ready.LocalURL, "http://"))
	must(t, slow.Start())
	t.Cleanup(slow.Stop)
	_, err := slow.Toxics.AddToxicJson(strings.NewReader(`{"type": "bandwidth", "stream": "downstream", "attributes": {"rate": 4096}}`)) // KB/s of each connection
	must(t, err)
	line, err := harness.NewWire(slow.Listen)
	must(t, err)
	t.Cleanup(line.Close)
	h := startHost(t, "http://"+line.Addr, harness.HostConfig{Dir: dir, Env: []string{"LOCAL_SAVE_DIR=" + dir + "/saved"}})
	c := &changing{t: t, path: filepath.Join(e.Config.Dir, "model.bin"), dir: filepath.Join(dir, "saved"), host: h, line: line}
	c.change()
	a, undisturbed := c.download("first.bin", 0)
	want(t, a, map[string]any{"success": true})
	c.whole("first.bin", c.last)

	before := c.last
	a, requests := c.download("some.bin", 3)
	want(t, a, map[string]any{"success": true})
	c.whole("some.bin", before)
	if requests <= undisturbed {
		t.Errorf("the file changed, and the download took %d requests, as without changes", requests)
	}
}
