package files

import (
	"testing"

	"go.uber.org/goleak"

	"colabrelay/executor/files/filestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Short names of the helpers shared by the packages that handle files.
var (
	must      = filestest.Must
	sha       = filestest.SHA
	body      = filestest.Body
	runs      = filestest.Run
	exists    = filestest.Exists
	awaitTick = filestest.AwaitTick
)

const timeout = filestest.Timeout

// tree is a test tree and its roots.
type tree struct {
	filestest.Tree
	roots *Roots
}

func newTree(t testing.TB) tree {
	t.Helper()
	tr := tree{Tree: filestest.New(t)}
	var err error
	tr.roots, err = Open(tr.Workdir, []string{tr.Drive}, tr.State, nil)
	must(t, err)
	return tr
}

func hostile(t testing.TB, tr tree) map[string]error {
	t.Helper()
	return tr.Hostile(t, filestest.Refusals{Forbidden: ErrForbidden, IsDir: ErrIsDir, NotDir: ErrNotDir, NotRegular: ErrNotRegular, BadPath: ErrBadPath})
}
