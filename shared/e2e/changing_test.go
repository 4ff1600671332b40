package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// changingBytes are more than the relay requests at once: what it requests later is of a later
// version.
const changingBytes = 96 << 20

// changing is a file on the VM that is written anew while it is downloaded.
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
func (c *changing) change() error {
	c.last++
	path := c.path
	if c.last%2 == 1 {
		path += ".new"
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(bytes.Repeat([]byte{c.last}, changingBytes)); err != nil || path == c.path {
		return err
	}
	return os.Rename(path, c.path)
}

// download calls the tool until it is done, and changes the file so many times, each time while
// the next megabyte has just passed and the rest is held up. It returns the number of requests,
// too.
func (c *changing) download(name string, times int) (harness.Answer, int64) {
	c.t.Helper()
	c.line.CutAt()
	done := 0
	c.line.Watch(func(down int64) {
		if done == times || down < int64(1+done)<<20 {
			return
		}
		done++
		if err := c.change(); err != nil {
			c.t.Error(err)
		}
	})
	a := harness.Answer{Fields: map[string]any{"can_continue": true}}
	for a.Fields["can_continue"] == true {
		var err error
		a, err = c.host.Call(within(c.t), "download_from_colab", map[string]any{"remote_path": "model.bin", "local_filename": name})
		must(c.t, err)
	}
	c.line.Watch(nil)
	if done < times {
		c.t.Errorf("the file changed %d times only", done)
	}
	return a, c.line.Traffic().Requests
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
	tier.Long(t)
	t.Parallel()
	dir := t.TempDir()
	e := borrowExecutor(t, stacks.Old(t))
	line, err := harness.NewWire(strings.TrimPrefix(e.Ready.LocalURL, "http://"))
	must(t, err)
	t.Cleanup(line.Close)
	h := startHost(t, "http://"+line.Addr, harness.HostConfig{Dir: dir, Env: []string{"LOCAL_SAVE_DIR=" + dir + "/saved"}})
	c := &changing{t: t, path: filepath.Join(e.Config.Dir, "model.bin"), dir: filepath.Join(dir, "saved"), host: h, line: line}
	must(t, c.change())
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
