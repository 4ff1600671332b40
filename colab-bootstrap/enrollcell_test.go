package bootstrap

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

func TestTheStartCellDownloadsOnlyWhatIsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		put, content string
		downloads    int
	}{
		"nothing there":     {"", "", 1},
		"already there":     {"executor", ends, 0},
		"an older one":      {"executor", "an older one", 1},
		"uploaded":          {asset, ends, 0},
		"uploaded to Drive": {"drive/MyDrive/" + asset, ends, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, downloads := serveEnding(t, digestOf(ends))
			e := newEnrollee(t, r)
			if c.put != "" {
				write(t, filepath.Join(e.dir, c.put), c.content)
			}
			if c.put == "executor" {
				if err := os.Chmod(filepath.Join(e.dir, c.put), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			e.refuses(TunnelNgrok, "the executor ended without a reason")
			log, err := os.ReadFile(filepath.Join(e.env["HOME"], ".colab-relay-executor.log"))
			if *downloads != c.downloads || string(log) != "started\n" {
				t.Errorf("%d downloads, and the executor's log is %q, %v", *downloads, log, err)
			}
		})
	}
}

// A server may send for ever, or so slowly that it never ends.
func TestDownloadsAreBounded(t *testing.T) {
	tier.Long(t)
	for name, c := range map[string]struct {
		piece, bound, less, says string
		pause                    time.Duration
	}{
		"endless": {strings.Repeat("x", 64<<10), "LARGEST = 256 << 20", "LARGEST = 1 << 20", "it is larger than 1 MiB", 0},
		"slow":    {"x", "SLOWEST = 150", "SLOWEST = 1", "it took longer than 1 s", 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for tick := time.NewTimer(0); r.Context().Err() == nil; tick.Reset(c.pause) {
					_, _ = w.Write([]byte(c.piece))
					_ = http.NewResponseController(w).Flush()
					select {
					case <-tick.C:
					case <-r.Context().Done():
					}
				}
			}))
			t.Cleanup(server.Close)
			e := newEnrollee(t, Release{Releases: server.URL, Version: "v1", SHA256AMD64: digestOf("a"), SHA256ARM64: digestOf("a")})
			cell, err := e.prepared(TunnelNone)
			if _, err = e.shows(strings.Replace(cell, c.bound, c.less, 1), err); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the cell reports %v", err)
			}
		})
	}
}

func TestTheReleaseMayBeElsewhere(t *testing.T) {
	r, downloads := serveEnding(t, digestOf(ends))
	e := newEnrollee(t, r)
	e.env["COLAB_RELAY_RELEASE_URL"] = r.Releases + "/v1/"
	e.release.Releases = "http://127.0.0.1:1/r"
	e.refuses(TunnelNgrok, "the executor ended without a reason")
	if *downloads != 1 {
		t.Errorf("%d downloads", *downloads)
	}
}

func TestCellsLeaveTheNotebooksNamesAlone(t *testing.T) {
	tier.Long(t)
	r, _ := serveEnding(t, digestOf(ends))
	e := newEnrollee(t, r)
	start, err := EnrollStart(r, Start{Job: e.offer.JobID(), RelayKey: e.offer.PublicKey(), Tunnel: TunnelNone})
	if err != nil {
		t.Fatal(err)
	}
	finish, err := EnrollFinish(e.offer.JobID(), "AAAA")
	if err != nil {
		t.Fatal(err)
	}
	status, err := StatusCell(e.offer.JobID())
	if err != nil {
		t.Fatal(err)
	}
	e.cell = "path, report, install, trouble = 1, 2, 3, 4\n_names = set(globals())\n" + start + finish + status +
		"\nprint('new:', sorted(set(globals()) - _names - {'_names'}), path, report, install, trouble)\n"
	out := e.run() // in IPython, which has names of its own
	if !strings.HasSuffix(out, "\nThe executor has ended.\nnew: [] 1 2 3 4") {
		t.Errorf("the cells showed:\n%s", out)
	}
	if _, err := ReadEnrollment(e.offer.JobID(), out); err == nil || err.Error() != "the executor that waited for this cell has ended: connect again" {
		t.Errorf("the finish cell reports %v", err)
	}
}

func TestTheReadyCellReportsThatItRan(t *testing.T) {
	e := newEnrollee(t, Release{Releases: "https://example.com/r", Version: "v1", SHA256AMD64: digestOf("a"), SHA256ARM64: digestOf("b")})
	if got, err := e.shows(ReadyCell(e.offer.JobID())); err != nil || got != (Report{Ready: true}) {
		t.Errorf("it reports %+v, %v", got, err)
	}
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

// The executor removes its files as it ends, at any moment of a cell.
func TestAnExecutorThatJustEndsLeavesItsReason(t *testing.T) {
	r, _ := serveEnding(t, digestOf(ends))
	e := newEnrollee(t, r)
	if err := os.Mkdir(e.folder(), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(e.folder(), "error"), `"it is over"`)
	lock, err := os.Create(filepath.Join(e.folder(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil { // it still runs, and its pid is gone
		t.Fatal(err)
	}
	sealed, err := newOffer(t).Seal(e.offer.PublicKey(), enrollment.Grant{Secret: testSecret, Tunnel: TunnelNone})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.shows(EnrollFinish(e.offer.JobID(), sealed)); err == nil || err.Error() != "it is over" {
		t.Errorf("it reports %v", err)
	}
}
