package bootstrap

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	return &enrollee{vm: v, release: r, offer: newOffer(t)}
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
	out := e.run()
	e.shownAt = append(e.shownAt, cell, out)
	return ReadEnrollment(e.offer.JobID(), out)
}

func (e *enrollee) start(tunnel string) (Report, error) {
	e.t.Helper()
	return e.shows(e.prepared(tunnel))
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

// showsOnPage runs a cell in a notebook's page, whose Secrets it may ask for.
func (e *enrollee) showsOnPage(cell string, err error) (Report, *page, error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
	e.cell = cell
	out, p := e.runPage()
	e.shownAt = append(e.shownAt, cell, out)
	r, err := ReadEnrollment(e.offer.JobID(), out)
	return r, p, err
}

// prepared returns the start cell for a tunnel.
func (e *enrollee) prepared(tunnel string) (string, error) {
	return EnrollStart(e.release, Start{Job: e.offer.JobID(), RelayKey: e.offer.PublicKey(), Tunnel: tunnel})
}

func TestATokenInColabsSecretsReachesNgrokAndNothingElse(t *testing.T) {
	tier.Long(t)
	r, _ := realRelease(t)
	edge := ngroktest.Start(t)
	e := newEnrollee(t, r)
	e.env["COLAB_RELAY_NGROK_SERVER"], e.env["COLAB_RELAY_NGROK_CA"] = edge.Addr, edge.CAFile
	token, secret := "2abc"+rand.Text(), auth.GenerateSecret()
	page := map[string]pageSecret{"NGROK_AUTHTOKEN": granted(" " + token + "\n")}
	e.onColab(page)

	started, p, err := e.showsOnPage(e.prepared(TunnelSecrets))
	if err != nil || started.Tunnel != TunnelNgrok || !slices.Equal(p.asked, []string{"NGROK_AUTHTOKEN"}) {
		t.Fatalf("the cell reports %+v, %v; the page was asked for %q", started, err, p.asked)
	}
	e.pid()
	delete(e.env, "PAGE_SECRETS") // from here on the test's own page must not show it
	finished, err := e.finish(started.Key, enrollment.Grant{Secret: secret.Reveal(), Tunnel: started.Tunnel})
	if err != nil || e.offer.Check(*finished.Answer) != nil || finished.Answer.URL != edge.URL() {
		t.Fatalf("the finish cell reports %+v, %v", finished.Answer, err)
	}
	if got := edge.Auths()[0].Extra.Authtoken; got != token {
		t.Errorf("ngrok saw the token %q", got)
	}
	e.hidesSecrets(secret.Reveal(), token)
}

// fakeCloudflared prints what cloudflared prints once its tunnel is up.
const fakeCloudflared = `#!/bin/sh
echo "2023-04-18T14:06:49Z INF |  https://a-quick-one.trycloudflare.com  |" >&2
echo "2024-02-08T06:25:48Z INF Registered tunnel connection connIndex=0 ip=198.41.192.167" >&2
exec tail -f /dev/null
`

// withCloudflared makes the start cell fetch text as cloudflared, if its digest is wanted.
func (e *enrollee) withCloudflared(cell, text, wanted string) string {
	e.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/cloudflared-"+strings.TrimPrefix(asset, "executor-") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte(text))
	}))
	e.t.Cleanup(server.Close)
	return strings.NewReplacer(cloudflaredURL, server.URL, cloudflaredAMD64, digestOf(wanted), cloudflaredARM64, digestOf(wanted)).Replace(cell)
}

func TestACloudflaredThatIsNotThePinnedOneIsNotUsed(t *testing.T) {
	r, _ := serveEnding(t, digestOf(ends))
	e := newEnrollee(t, r)
	cell, err := e.prepared(TunnelSecrets)
	_, err = e.shows(e.withCloudflared(cell, "#!/bin/sh\ntouch ran\n", fakeCloudflared), err)
	if err == nil || !strings.HasPrefix(err.Error(), "no cloudflared: http://") || !strings.Contains(err.Error(), "its SHA-256 differs") ||
		!strings.HasSuffix(err.Error(), "; add NGROK_AUTHTOKEN to Colab's Secrets (the key on the left), or set it where the relay runs") {
		t.Errorf("the cell reports %v", err)
	}
	if _, err := os.Stat(filepath.Join(e.dir, "ran")); err == nil {
		t.Error("it was run")
	}
}

// blank is a place in a template that a value replaces.
var blank = regexp.MustCompile(`@[A-Z0-9_]+@`)

func newOffer(t testing.TB) *enrollment.Offer {
	t.Helper()
	o, err := enrollment.NewOffer()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestReportsAreFoundAmongOtherOutput(t *testing.T) {
	o := newOffer(t)
	job, key := o.JobID(), o.PublicKey()
	line := func(fields string) string { return marker + `{"job": "` + job + `", ` + fields + "}" }
	answer := enrollment.Answer{URL: "https://a", InstanceID: "i", MAC: "m"}
	for name, c := range map[string]struct {
		output string
		want   Report
	}{
		"alone":           {line(`"ready": true`), Report{Ready: true}},
		"key":             {line(`"key": "` + key + `", "tunnel": "ngrok"`), Report{Key: key, Tunnel: "ngrok"}},
		"answer":          {line(`"answer": {"url": "https://a", "instance_id": "i", "mac": "m"}`), Report{Answer: &answer}},
		"the last counts": {line(`"error": "first"`) + "\n" + line(`"ready": true`), Report{Ready: true}},
		"another job's":   {line(`"ready": true`) + "\n" + marker + `{"job": "` + strings.Repeat("0", 32) + `", "error": "x"}`, Report{Ready: true}},
		"damaged ones":    {line(`"ready": true`) + "\n" + marker + "{\n" + marker + "[]\n" + marker, Report{Ready: true}},
		"a huge line":     {line(`"ready": true`) + "\n" + line(`"error": "`+strings.Repeat("x", maxMarkerBytes)+`"`), Report{Ready: true}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ReadEnrollment(job, c.output)
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("%v; -want +got:\n%s", err, diff)
			}
		})
	}
}

func FuzzReadEnrollment(f *testing.F) {
	job := newOffer(f).JobID()
	f.Add(marker + `{"job": "` + job + `", "ready": true}`)
	f.Add(marker + `{"job": "` + job + `", "answer": {}}` + "\n" + marker + "{}")
	f.Fuzz(func(t *testing.T, output string) {
		got, err := ReadEnrollment(job, output)
		set := 0
		for _, is := range []bool{got.Ready, got.Key != "", got.Answer != nil} {
			if is {
				set++
			}
		}
		if err == nil && (set != 1 || !strings.Contains(output, job)) || err != nil && set != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestCellsRefuseValuesThatPythonCouldReadAsCode(t *testing.T) {
	o := newOffer(t)
	r := Release{Releases: "https://example.com/r", Version: "v1", SHA256AMD64: digestOf("a"), SHA256ARM64: digestOf("b")}
	good := Start{Job: o.JobID(), RelayKey: o.PublicKey(), Tunnel: TunnelNgrok}
	evil := `"; import os #`
	for name, build := range map[string]func() (string, error){
		"job":             func() (string, error) { s := good; s.Job = evil; return EnrollStart(r, s) },
		"key":             func() (string, error) { s := good; s.RelayKey = evil; return EnrollStart(r, s) },
		"tunnel":          func() (string, error) { s := good; s.Tunnel = evil; return EnrollStart(r, s) },
		"release":         func() (string, error) { bad := r; bad.Version = evil; return EnrollStart(bad, good) },
		"finish's job":    func() (string, error) { return EnrollFinish(evil, "AAAA") },
		"grant":           func() (string, error) { return EnrollFinish(good.Job, evil) },
		"grant's newline": func() (string, error) { return EnrollFinish(good.Job, "AAAA\nAAAA") },
		"status' job":     func() (string, error) { return StatusCell(evil) },
		"ready's job":     func() (string, error) { return ReadyCell(evil) },
	} {
		if cell, err := build(); err == nil || cell != "" {
			t.Errorf("%s: %v, %s", name, err, cell)
		}
	}
	cell, err := EnrollStart(r, good)
	if err != nil || blank.MatchString(cell) {
		t.Errorf("blanks are left: %q, %v", blank.FindString(cell), err)
	}
}
