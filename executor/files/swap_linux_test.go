package files

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"colabrelay/shared/tier"
)

// A folder is exchanged for a link and back, as fast as code can. Whatever a request meets has
// a name: nothing is an internal error.
func TestAFolderThatKeepsBecomingALinkIsNamed(t *testing.T) {
	tier.Long(t)
	named := []error{ErrForbidden, ErrNotFound, ErrNotDir, ErrChanged, ErrNotRegular}
	for name, target := range map[string]string{"out": "/etc", "inside": "data"} {
		t.Run(name, func(t *testing.T) {
			tr := newTree(t)
			real, link := filepath.Join(tr.Workdir, "real"), filepath.Join(tr.Workdir, "link")
			must(t, os.Mkdir(real, 0o700))
			must(t, os.WriteFile(filepath.Join(real, "log"), []byte("hello"), 0o600))
			must(t, os.Symlink(target, link))
			ctx, cancel := context.WithCancel(t.Context())
			var wait sync.WaitGroup
			wait.Go(func() {
				for ctx.Err() == nil {
					must(t, unix.Renameat2(unix.AT_FDCWD, real, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE))
				}
			})
			defer wait.Wait()
			defer cancel()
			failed := 0
			for range 3000 {
				_, listed := tr.roots.List(t.Context(), "real", "")
				_, found := tr.roots.Stat("real/log")
				_, _, read := tr.roots.ReadMany(t.Context(), []string{"real/log"})
				target, chosen := tr.roots.Target("real/new")
				if chosen == nil {
					var dir *Dir
					if dir, chosen = target.OpenOrMake(); chosen == nil {
						must(t, dir.Close())
					}
				}
				_, made := tr.roots.MakeFolder("real/a/b")
				for what, err := range map[string]error{"list": listed, "stat": found, "read": read, "choose a target": chosen, "make a folder": made} {
					if err == nil {
						continue
					}
					failed++
					if !slices.ContainsFunc(named, func(known error) bool { return errors.Is(err, known) }) {
						t.Fatalf("%s: %v", what, err)
					}
				}
			}
			if failed == 0 {
				t.Error("nothing failed: the test shows nothing")
			}
		})
	}
}
