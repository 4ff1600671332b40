package bootstrap

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/enrollment"
	"colabrelay/shared/within"
)

// enrollee is a machine whose notebook gets the enrollment's cells of one offer.
type enrollee struct {
	*vm
	release Release
	offer   *enrollment.Offer
	shownAt []string // everything that the notebook held or showed
}

// newEnrollee returns a plain machine and a new offer.
func newEnrollee(t *testing.T, r Release) *enrollee {
	t.Helper()
	v := newVM(t, r)
	v.env["TMPDIR"] = t.TempDir()
	e := &enrollee{vm: v, release: r}
	e.renew()
	return e
}

// renew makes another offer.
func (e *enrollee) renew() {
	e.t.Helper()
	var err error
	if e.offer, err = enrollment.NewOffer(); err != nil {
		e.t.Fatal(err)
	}
}

// folder is where cells and executor meet.
func (e *enrollee) folder() string {
	return filepath.Join(e.env["TMPDIR"], "colab-relay-enroll-"+e.offer.JobID())
}

// shows runs a cell and reads its report.
func (e *enrollee) shows(cell string, err error) (Report, error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
	e.cell = cell
	out := e.runPlain()
	e.shownAt = append(e.shownAt, cell, out)
	return ReadEnrollment(e.offer.JobID(), out)
}

// runPlain runs the cell, which is plain Python, and returns what it shows.
func (e *enrollee) runPlain() string {
	e.t.Helper()
	out, err := e.plain(e.t.Context())
	if err != nil {
		e.t.Fatalf("Python: %v\n%s", err, out)
	}
	return e.shown(out)
}

// plain is runPlain without checks. It may be called concurrently.
func (e *enrollee) plain(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, e.env["KERNEL_PYTHON"], "-")
	cmd.Dir, cmd.Env, cmd.Stdin = e.dir, e.environ(), strings.NewReader(e.cell)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (e *enrollee) start(tunnel string) (Report, error) {
	e.t.Helper()
	return e.shows(EnrollStart(e.release, Start{Job: e.offer.JobID(), RelayKey: e.offer.PublicKey(), Tunnel: tunnel}))
}

// finish seals the grant for the key and runs the cell that hands it over.
func (e *enrollee) finish(key string, g enrollment.Grant) (Report, error) {
	e.t.Helper()
	sealed, err := e.offer.Seal(key, g)
	if err != nil {
		e.t.Fatal(err)
	}
	return e.shows(EnrollFinish(e.offer.JobID(), sealed))
}

// pid is the executor's process. The test ends it.
func (e *enrollee) pid() int {
	e.t.Helper()
	pid := 0
	readJSON(e.t, filepath.Join(e.folder(), "pid"), &pid)
	e.t.Cleanup(func() {
		_ = syscall.Kill(pid, syscall.SIGTERM)
		within.Until(e.t, "the executor has ended", func() bool { return gone(pid) })
	})
	return pid
}

// hidesSecrets looks for secrets in everything that the notebook showed, in the arguments and
// the environment of all processes, and in all files of the machine.
func (e *enrollee) hidesSecrets(secrets ...string) {
	e.t.Helper()
	places := map[string][]byte{"the notebook": []byte(strings.Join(e.shownAt, "\n"))}
	for _, pattern := range []string{"/proc/[0-9]*/cmdline", "/proc/[0-9]*/environ"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			places[file], _ = os.ReadFile(file) // which may have ended
		}
	}
	for _, root := range []string{e.dir, e.env["HOME"], e.env["TMPDIR"]} {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && d.Name() != "executor" { // the program
				places[path], _ = os.ReadFile(path)
			}
			return nil
		})
	}
	for place, content := range places {
		for _, secret := range secrets {
			if bytes.Contains(content, []byte(secret)) {
				e.t.Errorf("%s holds a secret", place)
			}
		}
	}
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}
