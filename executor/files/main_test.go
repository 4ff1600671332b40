package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/shared/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what a test waits for.
const patience = 30 * time.Second

func sha(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// body is n bytes that differ from place to place.
func body(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(i*7 + i>>8*13 + i>>16)
	}
	return out
}

// runs runs something with a Run method until the test ends.
func runs(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		must(t, <-ended)
	}
	t.Cleanup(stop)
	return stop
}

// inbox is uploads into a tree, running.
type inbox struct {
	*Uploads
	tree
	t    testing.TB
	stop func()
}

func newInbox(t testing.TB) *inbox {
	t.Helper()
	in := &inbox{tree: newTree(t), t: t}
	in.open()
	return in
}

// open is what a new executor does.
func (in *inbox) open() {
	in.t.Helper()
	var err error
	in.Uploads, err = OpenUploads(in.tree.roots, filepath.Join(in.state, "uploads"))
	must(in.t, err)
	in.stop = runs(in.t, in.Run)
}

// reopen is a kill and a new executor: nothing is closed in between.
func (in *inbox) reopen() {
	in.t.Helper()
	in.stop()
	in.open()
}

func (in *inbox) start(path string, data []byte, overwrite bool) contract.Upload {
	in.t.Helper()
	out, err := in.Start(contract.UploadStart{Path: path, SizeBytes: int64(len(data)), SHA256: sha(data), Overwrite: overwrite})
	must(in.t, err)
	return out
}

func (in *inbox) put(id string, offset int64, data []byte, proven bool) contract.Upload {
	in.t.Helper()
	out, err := in.Put(id, offset, data, proven)
	must(in.t, err)
	return out
}

func (in *inbox) commit(id string) (contract.Upload, error) {
	return in.Commit(in.t.Context(), id, patience)
}

// send uploads all of data and returns where it is.
func (in *inbox) send(path string, data []byte, overwrite bool) contract.Upload {
	in.t.Helper()
	up := in.start(path, data, overwrite)
	in.put(up.UploadID, 0, data, true)
	out, err := in.commit(up.UploadID)
	must(in.t, err)
	if out.Status != contract.UploadCommitted || out.ReceivedBytes != int64(len(data)) || len(out.Missing) != 0 {
		in.t.Fatalf("after all was sent the upload is %+v", out)
	}
	return out
}

// holds checks a file of the workdir, and that no part is left in its folder.
func (in *inbox) holds(path string, want []byte) {
	in.t.Helper()
	if !filepath.IsAbs(path) {
		path = filepath.Join(in.workdir, path)
	}
	got, err := os.ReadFile(path)
	must(in.t, err)
	if sha(got) != sha(want) {
		in.t.Errorf("%q holds %d bytes, not the %d sent", path, len(got), len(want))
	}
	if parts := in.parts(filepath.Dir(path)); len(parts) != 0 {
		in.t.Errorf("parts are left: %q", parts)
	}
}

func (in *inbox) parts(dir string) []string {
	in.t.Helper()
	parts, err := filepath.Glob(filepath.Join(dir, ".*"+partSuffix))
	must(in.t, err)
	return parts
}
