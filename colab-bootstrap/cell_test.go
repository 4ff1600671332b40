package bootstrap

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/stacks"
)

// standIn is the release file of these tests: it says that it runs, and leaves
// its environment and arguments where only the test looks.
const standIn = `#!/bin/sh
echo "stand-in executor runs"
printf '%s\n' "$EXECUTOR_SECRET" "$NGROK_AUTHTOKEN" "$NGROK_DOMAIN" "$#" "$1" > seen
`

// userdata stands in for the part of google.colab that asks the notebook's
// page. Names, arguments and errors are those of the real module.
const userdata = `
import os

class NotebookAccessError(Exception):
  def __init__(self, key):
    super().__init__(f'Notebook does not have access to secret {key}')

class SecretNotFoundError(Exception):
  def __init__(self, key):
    super().__init__(f'Secret {key} does not exist.')

class TimeoutException(Exception):
  def __init__(self, key):
    super().__init__(f'Requesting secret {key} timed out. Secrets can only be fetched when running from the Colab UI.')

def get(key):
  value = os.environ.get('PAGE_' + key, 'absent')
  if value == 'absent':
    raise SecretNotFoundError(key)
  if value == 'denied':
    raise NotebookAccessError(key)
  if value == 'silent':
    raise TimeoutException(key)
  return value
`

const (
	testSecret = "the-executors-secret-0123456789abcdef"
	testToken  = "2abcTheTokenOfTheAccount_9"
	testDomain = "lab $HOME {x}.ngrok.app" // what a shell or IPython must not touch
)

// vm is a folder in which the cell runs, as /content is.
type vm struct {
	t    *testing.T
	dir  string
	cell string
	env  []string
}

func newVM(t *testing.T, releaseURL, digest string) *vm {
	t.Helper()
	cell, err := Cell(Release{Releases: "http://127.0.0.1:9/never", Version: "v1", SHA256AMD64: digest, SHA256ARM64: digest})
	if err != nil {
		t.Fatal(err)
	}
	dir, modules := t.TempDir(), t.TempDir()
	write(t, filepath.Join(modules, "google", "colab", "__init__.py"), "")
	write(t, filepath.Join(modules, "google", "colab", "userdata.py"), userdata)
	return &vm{t: t, dir: dir, cell: cell, env: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "IPYTHONDIR=" + t.TempDir(), "PYTHONPATH=" + modules,
		"LANG=C.UTF-8", "PYTHONUNBUFFERED=1", "COLAB_RELAY_RELEASE_URL=" + releaseURL,
		"PAGE_EXECUTOR_SECRET=" + testSecret, "PAGE_NGROK_AUTHTOKEN= " + testToken + "\n", "PAGE_NGROK_DOMAIN=" + testDomain,
	}}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// run runs the cell in the IPython of Colab's kernel stack and returns what a
// person would see under it.
func (v *vm) run(env ...string) string {
	v.t.Helper()
	file := filepath.Join(v.t.TempDir(), "cell.ipy")
	write(v.t, file, v.cell)
	ctx, cancel := context.WithTimeout(v.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, stacks.Old(v.t).Python, "-m", "IPython", "--colors=NoColor", file)
	cmd.Dir = v.dir
	cmd.Env = append(v.env, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		v.t.Fatalf("IPython: %v\n%s", err, out)
	}
	text := strings.TrimSpace(string(out))
	if strings.Contains(text, "Traceback") || strings.Contains(text, testSecret) || strings.Contains(text, testToken) {
		v.t.Errorf("the cell showed a traceback or a secret:\n%s", text)
	}
	return text
}

// refused runs the cell and wants one line and nothing left behind.
func (v *vm) refused(says string, env ...string) {
	v.t.Helper()
	out := v.run(env...)
	if strings.Contains(out, "\n") || !strings.Contains(out, says) {
		v.t.Errorf("want one line with %q, got:\n%s", says, out)
	}
	left, err := filepath.Glob(filepath.Join(v.dir, "executor*"))
	if err != nil || len(left) != 0 {
		v.t.Errorf("left behind: %q, %v", left, err)
	}
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// release serves the stand-in and counts how often it is fetched.
func release(t *testing.T) (url string, fetched *int) {
	t.Helper()
	fetched = new(int)
	mux := http.NewServeMux()
	mux.HandleFunc("/r/executor-linux-"+runtime.GOARCH, func(w http.ResponseWriter, _ *http.Request) {
		*fetched++
		_, _ = w.Write([]byte(standIn))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + "/r", fetched
}

func TestTheCellStartsTheReleaseWithTheSecrets(t *testing.T) {
	url, fetched := release(t)
	v := newVM(t, url, digestOf(standIn))
	for range 2 { // the second run finds the file there
		if out := v.run(); out != "stand-in executor runs" {
			t.Errorf("the cell showed:\n%s", out)
		}
	}
	seen, err := os.ReadFile(filepath.Join(v.dir, "seen"))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{testSecret, testToken, testDomain, "1", "--domain=" + testDomain, ""}, "\n")
	if string(seen) != want {
		t.Errorf("the program saw\n%s\nwant\n%s", seen, want)
	}
	if *fetched != 1 {
		t.Errorf("the release was fetched %d times", *fetched)
	}
}

func TestTheCellReplacesAnOlderExecutor(t *testing.T) {
	url, _ := release(t)
	v := newVM(t, url, digestOf(standIn))
	write(t, filepath.Join(v.dir, "executor"), "an older one")
	if out := v.run(); out != "stand-in executor runs" {
		t.Errorf("the cell showed:\n%s", out)
	}
}

func TestTheCellRefusesInOneLine(t *testing.T) {
	url, _ := release(t)
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	for name, c := range map[string]struct{ url, digest, says string }{
		"wrong digest":       {url, digestOf("something else"), "SHA-256 differs"},
		"missing release":    {url + "/none", digestOf(standIn), "the server does not have it"},
		"unreachable server": {"http://" + gone.Addr().String(), digestOf(standIn), "can't be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			newVM(t, c.url, c.digest).refused("No executor: " + c.url + "/executor-linux-" + runtime.GOARCH)
			newVM(t, c.url, c.digest).refused(c.says)
		})
	}
	t.Run("template", func(t *testing.T) {
		v := newVM(t, url, digestOf(standIn))
		v.cell = template
		v.refused("this cell is the template")
	})
}

func TestTheCellSaysWhichSecretIsMissingAndGoesOn(t *testing.T) {
	url, _ := release(t)
	v := newVM(t, url, digestOf(standIn))
	for name, c := range map[string]struct {
		env  string
		says string
	}{
		"token not there":      {"PAGE_NGROK_AUTHTOKEN=absent", "NGROK_AUTHTOKEN: it is not in Colab's Secrets (the key on the left); there is no public URL, so only this VM itself can reach the executor."},
		"token empty":          {"PAGE_NGROK_AUTHTOKEN=", "NGROK_AUTHTOKEN: it is empty in Colab's Secrets; there is no public URL"},
		"secret not granted":   {"PAGE_EXECUTOR_SECRET=denied", "EXECUTOR_SECRET: this notebook has no access to it (switch it on under the key on the left); the executor makes one"},
		"page does not answer": {"PAGE_NGROK_DOMAIN=silent", "NGROK_DOMAIN: the page did not answer (keep the notebook's tab open and run the cell again); ngrok chooses the URL."},
	} {
		t.Run(name, func(t *testing.T) {
			lines := strings.Split(v.run(c.env), "\n")
			if len(lines) != 2 || !strings.HasPrefix(lines[0], c.says) || lines[1] != "stand-in executor runs" {
				t.Errorf("the cell showed:\n%s", strings.Join(lines, "\n"))
			}
		})
	}
	t.Run("not Colab", func(t *testing.T) {
		out := v.run("PYTHONPATH=", "NGROK_AUTHTOKEN="+testToken)
		for _, line := range []string{
			"EXECUTOR_SECRET: this is not Colab; the executor makes one",
			"NGROK_AUTHTOKEN: this is not Colab; the one in the environment is used.",
		} {
			if !strings.Contains(out, line) {
				t.Errorf("%q is missing in:\n%s", line, out)
			}
		}
	})
}

func TestCellRefusesWhatCouldBeReadAsPython(t *testing.T) {
	good := Release{Releases: "https://example.com/r", Version: "v1", SHA256AMD64: digestOf("a"), SHA256ARM64: digestOf("b")}
	if cell, err := Cell(good); err != nil || strings.Contains(cell, "@") {
		t.Fatalf("%v\n%s", err, cell)
	}
	for name, spoil := range map[string]func(*Release){
		"quote in URL":     func(r *Release) { r.Releases = `https://example.com/"+x+"` },
		"no URL":           func(r *Release) { r.Releases = "releases" },
		"quote in version": func(r *Release) { r.Version = `v1"` },
		"no version":       func(r *Release) { r.Version = "" },
		"short digest":     func(r *Release) { r.SHA256AMD64 = "00" },
		"no digest":        func(r *Release) { r.SHA256ARM64 = "" },
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			spoil(&bad)
			if _, err := Cell(bad); err == nil {
				t.Error("it was accepted")
			}
		})
	}
}
