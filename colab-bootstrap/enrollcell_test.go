package bootstrap

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/enrollment"
	"colabrelay/shared/freeport"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
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
	missing, unreachable := good, good
	missing.Version = "v2"
	gone, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	unreachable.Releases = "http://" + gone
	for name, c := range map[string]struct {
		release Release
		says    string
	}{
		"wrong digest":       {other, "not the file that this cell expects (its SHA-256 differs)"},
		"unreachable server": {unreachable, "the server can't be reached ("},
	} {
		t.Run(name, func(t *testing.T) {
			url := c.release.Releases + "/" + c.release.Version + "/" + asset
			newEnrollee(t, c.release).refuses(TunnelNgrok, "no executor: "+url+": ", c.says, asset+" of "+c.release.Version+" was not uploaded here or to Drive")
		})
	}
	t.Run("upload of another version", func(t *testing.T) {
		e := newEnrollee(t, missing)
		write(t, filepath.Join(e.dir, asset), "another version")
		e.refuses(TunnelNgrok, "; "+filepath.Join(e.dir, asset)+" is a different file")
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

func TestAGrantThatDoesNotOpenIsReported(t *testing.T) {
	tier.Long(t)
	r, _ := realRelease(t)
	e := newEnrollee(t, r)
	if _, err := e.start(TunnelNone); err != nil {
		t.Fatal(err)
	}
	executor := e.pid()
	strangers := newOffer(t)
	sealed, err := strangers.Seal(e.offer.PublicKey(), enrollment.Grant{Secret: testSecret, Tunnel: TunnelNone})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.shows(EnrollFinish(e.offer.JobID(), sealed)); err == nil || !strings.HasPrefix(err.Error(), "the grant does not open: it was made for another executor process") {
		t.Errorf("it reports %v", err)
	}
	within.Until(t, "the executor is gone", func() bool { return gone(executor) })
	if _, err := os.Stat(e.folder()); !os.IsNotExist(err) {
		t.Errorf("folder: %v", err)
	}
}
