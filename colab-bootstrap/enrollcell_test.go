package bootstrap

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/tier"
)

// ends is a program that ends at once, instead of an executor.
const ends = "#!/bin/sh\necho started; exit 3\n"

// serveEnding serves ends as version v1's executor.
func serveEnding(t *testing.T, digest string) (Release, *int) {
	t.Helper()
	r, downloads := serve(t, ends)
	r.SHA256AMD64, r.SHA256ARM64 = digest, digest
	return r, downloads
}

// refuses checks that the start cell reports one error, shows nothing else and leaves no
// file behind.
func (e *enrollee) refuses(tunnel string, says ...string) {
	e.t.Helper()
	_, err := e.start(tunnel)
	var cell *CellError
	if !errors.As(err, &cell) {
		e.t.Fatalf("the cell reports %v", err)
	}
	for _, part := range says {
		if !strings.Contains(cell.Sentence, part) || strings.Contains(cell.Sentence, "\n") {
			e.t.Errorf("the cell reports %q, want one line with %q", cell.Sentence, part)
		}
	}
	if shown := e.shownAt[len(e.shownAt)-1]; strings.Count(shown, "\n") != 0 {
		e.t.Errorf("the cell showed:\n%s", shown)
	}
	for _, pattern := range []string{e.dir + "/.executor-*", e.env["TMPDIR"] + "/colab-relay-*", e.env["HOME"] + "/.cache/colab-relay/*/.executor-*"} {
		if left, _ := filepath.Glob(pattern); left != nil {
			e.t.Errorf("left behind: %q", left)
		}
	}
}

func TestTheStartCellReportsWhyThereIsNoExecutor(t *testing.T) {
	tier.Long(t)
	good, _ := serveEnding(t, digestOf(ends))
	other, _ := serveEnding(t, digestOf("another"))
	t.Run("wrong digest", func(t *testing.T) {
		newEnrollee(t, other).refuses(TunnelNgrok, "no executor: "+other.Releases+"/v1/"+asset+": ", "not the file that this cell expects (its SHA-256 differs)")
	})
	t.Run("folder of another user", func(t *testing.T) {
		e := newEnrollee(t, good)
		if err := os.Symlink(t.TempDir(), e.folder()); err != nil {
			t.Fatal(err)
		}
		_, err := e.start(TunnelNgrok)
		if err == nil || !strings.Contains(err.Error(), "another user has made "+e.folder()) {
			t.Errorf("the cell reports %v", err)
		}
	})
}
