package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/shared/auth"
	"colabrelay/shared/enrollment"
	"colabrelay/shared/tier"
)

// asEnrollLimits is the variable that sets enrollLimits, in nanoseconds, when this test
// program is the executor.
const asEnrollLimits = "EXECUTOR_ENROLL_LIMITS"

// ngrokToken is a token that no other test puts anywhere.
var ngrokToken = "2abc" + rand.Text()

// enrolling is an executor that enrolls, and its relay's offer.
type enrolling struct {
	*program
	offer  *enrollment.Offer
	folder string
	secret auth.Secret
}

// startEnroll runs executor enroll.
func startEnroll(t *testing.T, options ...option) *enrolling {
	t.Helper()
	offer, err := enrollment.NewOffer()
	must(t, err)
	e := &enrolling{offer: offer, folder: filepath.Join(t.TempDir(), "meeting"), secret: auth.GenerateSecret()}
	must(t, os.Mkdir(e.folder, 0o700))
	e.program = newProgram(t, options...)
	flags := []string{"enroll", "--job", offer.JobID(), "--relay-key", offer.PublicKey(), "--dir", e.folder, "--workdir", e.dir}
	e.cmd.Args = slices.Insert(e.cmd.Args, 1, flags...)
	e.run()
	return e
}

// read reads one of the executor's files.
func (e *enrolling) read(name string, into any) bool {
	raw, err := os.ReadFile(filepath.Join(e.folder, name))
	return err == nil && json.Unmarshal(raw, into) == nil
}

// key waits for the executor's public key.
func (e *enrolling) key() (key string) {
	e.t.Helper()
	e.until("there is a key", func() bool { return e.read("key", &key) })
	return key
}

// give leaves a text as the grant, as the cell does.
func (e *enrolling) give(text string) {
	e.t.Helper()
	part := filepath.Join(e.folder, "grant.new")
	must(e.t, os.WriteFile(part, []byte(text), 0o600))
	must(e.t, os.Rename(part, filepath.Join(e.folder, "grant")))
}

// grant seals a grant for the executor and gives it.
func (e *enrolling) grant(g enrollment.Grant) {
	e.t.Helper()
	g.Secret = e.secret.Reveal()
	sealed, err := e.offer.Seal(e.key(), g)
	must(e.t, err)
	e.give(sealed)
}

// paired grants a tunnel, checks the answer and is ready to call the executor.
func (e *enrolling) paired(g enrollment.Grant) enrollment.Answer {
	e.t.Helper()
	e.grant(g)
	var a enrollment.Answer
	e.until("there is an answer", func() bool { return e.read("answer", &a) })
	must(e.t, e.offer.Check(a))
	e.url, e.program.secret = a.URL, e.secret
	return a
}

// left lists the folder; nil if it is gone.
func (e *enrolling) left() (names []string) {
	entries, _ := os.ReadDir(e.folder)
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// holdsNoSecret looks for secrets in all files of the executor, in what it printed, and in
// the arguments and environments of all processes.
func (e *enrolling) holdsNoSecret(secrets ...string) {
	e.t.Helper()
	places := map[string][]byte{"stdout": []byte(e.out.String()), "stderr": []byte(e.errs.String())}
	for _, root := range []string{e.dir, e.folder, homeOf(e.cmd.Env)} {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				places[path], _ = os.ReadFile(path)
			}
			return nil
		})
	}
	for _, pattern := range []string{"/proc/[0-9]*/cmdline", "/proc/[0-9]*/environ"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			places[file], _ = os.ReadFile(file)
		}
	}
	for place, content := range places {
		for _, secret := range secrets {
			if bytes.Contains(content, []byte(secret)) {
				e.t.Errorf("%s holds a secret", place)
			}
		}
	}
}

func homeOf(environ []string) string {
	at := slices.IndexFunc(environ, func(entry string) bool { return strings.HasPrefix(entry, "HOME=") })
	return strings.TrimPrefix(environ[at], "HOME=")
}

func TestAnEnrolledExecutorServesWithTheRelaysSecretAndKeepsItInMemory(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	edge := ngroktest.Start(t)
	others := "another secret, of the environment ...."
	e := startEnroll(t, withEnv(envNgrokServer+"="+edge.Addr, envNgrokCA+"="+edge.CAFile, envSecret+"="+others, envNgrokToken+"=another-token"))
	a := e.paired(enrollment.Grant{Tunnel: "ngrok", NgrokToken: ngrokToken, Domain: "lab.ngrok.app"})
	if a.URL != edge.URL() || edge.Auths()[0].Extra.Authtoken != ngrokToken || !strings.Contains(string(edge.Binds()[0].Raw), "lab.ngrok.app") {
		t.Errorf("the answer is %+v; the edge saw %+v", a, edge.Auths())
	}
	e.url = e.localURL()
	if got := resultOf(e.submit("one", "6*7", 30)); got != "42" {
		t.Errorf("a run gave %s", got)
	}
	e.holdsNoSecret(e.secret.Reveal(), ngrokToken)
	e.signal(syscall.SIGTERM)
	if code := e.exit(); code != 0 {
		t.Errorf("exit code is %d", code)
	}
	if _, err := os.Stat(e.folder); !os.IsNotExist(err) {
		t.Errorf("the folder is still there with %q", e.left())
	}
	e.holdsNoSecret(e.secret.Reveal(), ngrokToken)
}

func TestFoldersThatOthersCouldEnterAreRefused(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(folder string) error{
		"open to others": func(f string) error { return os.Chmod(f, 0o755) },
		"missing":        os.Remove,
		"a link": func(f string) error {
			if err := os.Rename(f, f+".real"); err != nil {
				return err
			}
			return os.Symlink(f+".real", f)
		},
		"a file": func(f string) error {
			if err := os.Remove(f); err != nil {
				return err
			}
			return os.WriteFile(f, nil, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), "folder")
			must(t, os.Mkdir(folder, 0o700))
			must(t, spoil(folder))
			p := newProgram(t)
			offer, err := enrollment.NewOffer()
			must(t, err)
			p.cmd.Args = append([]string{p.cmd.Args[0], "enroll", "--job", offer.JobID(), "--relay-key", offer.PublicKey(), "--dir", folder}, p.cmd.Args[1:]...)
			p.run()
			if code := p.exit(); code != 1 || p.errs.String() == "" {
				t.Errorf("exit code is %d, stderr:\n%s", code, p.errs)
			}
		})
	}
}
