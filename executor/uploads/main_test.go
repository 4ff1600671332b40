package uploads

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"colabrelay/executor/files"
	"colabrelay/executor/files/filestest"
	"colabrelay/shared/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Short names of the helpers shared by the packages that handle files.
var (
	must       = filestest.Must
	sha        = filestest.SHA
	body       = filestest.Body
	runs       = filestest.Run
	everything = filestest.Everything
	exists     = filestest.Exists
)

const timeout = filestest.Timeout

// inbox is a running store of uploads into a tree.
type inbox struct {
	*Store
	filestest.Tree
	roots *files.Roots
	t     testing.TB
	stop  func()

	started map[string]contract.UploadStart // by id
	log     bytes.Buffer                    // of the executors, while none runs
}

func newInbox(t testing.TB) *inbox {
	t.Helper()
	in := &inbox{Tree: filestest.New(t), t: t, started: map[string]contract.UploadStart{}}
	var err error
	in.roots, err = files.Open(in.Workdir, []string{in.Drive}, in.State, nil)
	must(t, err)
	in.open()
	return in
}

// open starts a new executor.
func (in *inbox) open() {
	in.t.Helper()
	var err error
	in.Store, err = Open(in.roots, files.NewDigests(in.roots), filepath.Join(in.State, "uploads"), slog.New(slog.NewTextHandler(&in.log, nil)))
	must(in.t, err)
	in.stop = runs(in.t, in.Run)
}

// reopen kills the executor without closing anything, and starts a new one.
func (in *inbox) reopen() {
	in.t.Helper()
	in.stop()
	in.open()
}

// start starts an upload, which commit then knows by its id.
func (in *inbox) start(path string, data []byte, overwrite bool) contract.Upload {
	in.t.Helper()
	out, err := in.begin(contract.UploadStart{Path: path, SizeBytes: int64(len(data)), Version: sha(data), Overwrite: overwrite})
	must(in.t, err)
	return out
}

func (in *inbox) begin(start contract.UploadStart) (contract.Upload, error) {
	out, err := in.Start(in.t.Context(), start, 0)
	in.started[out.UploadID] = start
	return out, err
}

func (in *inbox) tryPut(id string, offset int64, data []byte) error {
	return in.Put(id, offset, int64(len(data)), bytes.NewReader(data))
}

func (in *inbox) put(id string, offset int64, data []byte) {
	in.t.Helper()
	must(in.t, in.tryPut(id, offset, data))
}

func (in *inbox) commit(id string, data []byte) (contract.Upload, error) {
	start := in.started[id]
	start.SHA256 = sha(data)
	return in.Start(in.t.Context(), start, timeout)
}

// send uploads and commits data.
func (in *inbox) send(path string, data []byte, overwrite bool) contract.Upload {
	in.t.Helper()
	up := in.start(path, data, overwrite)
	in.put(up.UploadID, 0, data)
	out, err := in.commit(up.UploadID, data)
	must(in.t, err)
	if out.Status != contract.UploadCommitted || len(out.Missing) != 0 {
		in.t.Fatalf("after all was sent the upload is %+v", out)
	}
	return out
}

// holds checks the content of a file, and that no part file is left in its folder.
func (in *inbox) holds(path string, want []byte) {
	in.t.Helper()
	if !filepath.IsAbs(path) {
		path = filepath.Join(in.Workdir, path)
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
	parts, err := filepath.Glob(filepath.Join(dir, ".*"+files.PartSuffix))
	must(in.t, err)
	return parts
}
