package bootstrap

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/shared/auth"
	"colabrelay/shared/enrollment"
	"colabrelay/shared/tier"
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

func TestTwoCellsPairARealExecutorAndNothingShowsASecret(t *testing.T) {
	tier.Long(t)
	r, relay := realRelease(t)
	edge := ngroktest.Start(t)
	e := newEnrollee(t, r)
	e.env["COLAB_RELAY_NGROK_SERVER"], e.env["COLAB_RELAY_NGROK_CA"] = edge.Addr, edge.CAFile
	secret, token := auth.GenerateSecret(), "2abc"+rand.Text()

	started, err := e.start(TunnelNgrok)
	if err != nil || started.Tunnel != TunnelNgrok {
		t.Fatalf("the start cell reports %+v, %v", started, err)
	}
	executor := e.pid()
	again, err := e.start(TunnelNgrok)
	if err != nil || again != started {
		t.Errorf("a second run of the start cell reports %+v, %v; the first one %+v", again, err, started)
	}
	finished, err := e.finish(started.Key, enrollment.Grant{Secret: secret.Reveal(), Tunnel: started.Tunnel, NgrokToken: token})
	if err != nil || finished.Answer == nil {
		t.Fatalf("the finish cell reports %+v, %v", finished, err)
	}
	if err := e.offer.Check(*finished.Answer); err != nil || finished.Answer.URL != edge.URL() {
		t.Fatalf("the answer %+v: %v", finished.Answer, err)
	}
	repeated, err := e.shows(e.cell, nil)
	if err != nil || *repeated.Answer != *finished.Answer {
		t.Errorf("a second run of the finish cell reports %+v, %v", repeated.Answer, err)
	}

	h := paired(t, relay, auth.Pairing{URL: finished.Answer.URL, Secret: secret}.String())
	kernel, parent := pids(t, h)
	if parent != executor {
		t.Errorf("the kernel's parent is %d, the enrolled executor is %d", parent, executor)
	}
	e.hidesSecrets(secret.Reveal(), token)

	if err := syscall.Kill(executor, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	within.Until(t, "executor, kernel, tunnel and folder are gone", func() bool {
		_, err := os.Stat(e.folder())
		return gone(kernel) && gone(executor) && !edge.Online(edge.URL()) && os.IsNotExist(err)
	})
	if _, err := e.shows(e.cell, nil); err == nil || !strings.Contains(err.Error(), "has ended: connect again") {
		t.Errorf("after the end the finish cell reports %v", err)
	}
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
