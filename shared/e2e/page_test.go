package e2e

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/relay/pairing"
	"colabrelay/shared/auth"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/e2e/standin"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

// pageURL is the link in what `colab-relay page open` prints.
var pageURL = regexp.MustCompile(`https://colab\.research\.google\.com/\S+`)

// One command starts the executor through the page, and pairs it. Neither the secret nor the token
// is anywhere but in the two files that hold them. The cell that is left ends the executor.
func TestOneCommandPairsTheVMOfColabsPage(t *testing.T) {
	p := newColabPage(t)
	var out, errs harness.Output
	cmd := exec.CommandContext(within.Context(t), binaries.Relay, "page", "open", "--no-browser", "--start-executor", "--status-cell", "--json")
	cmd.Env = append([]string{"PATH=/usr/bin:/bin"}, p.env()...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	must(t, cmd.Start())
	must(t, harness.Poll(within.Context(t), func() (bool, error) { return pageURL.MatchString(errs.String()), nil }))
	p.open(pageURL.FindString(errs.String()))
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	var answer struct{ Executor string }
	must(t, json.Unmarshal([]byte(out.String()), &answer))
	if answer.Executor != "default" {
		t.Errorf("answer %s", out.String())
	}
	if cells := p.cells(); len(cells) != 2 || !strings.Contains(cells[1], "stop this cell to stop it") {
		t.Errorf("the notebook has the cells %q", cells)
	}
	run := exec.CommandContext(within.Context(t), binaries.Relay, "run", "-c", "print(6 * 7)")
	run.Env = cmd.Env
	if text, err := run.CombinedOutput(); err != nil || !strings.Contains(string(text), "42") {
		t.Errorf("run: %v\n%s", err, text)
	}
	r, err := p.store().Get("default")
	must(t, err)
	if auths := p.edge.Auths(); len(auths) == 0 || auths[0].Extra.Authtoken != p.token {
		t.Error("the executor did not log in with the relay's token")
	}
	var seen strings.Builder
	for _, tab := range p.tabs {
		seen.WriteString(tab.Everything())
	}
	all := places{"the page": []byte(seen.String()), "stdout": []byte(out.String()), "stderr": []byte(errs.String())}
	all.addProcesses()
	all.addFiles(t, p.laptop, p.tokenFile(), filepath.Join(p.laptop, "config", "colab-relay", "runtimes.json"))
	programs, err := filepath.Glob(filepath.Join(p.vm, "home", ".cache", "colab-relay", "*", "executor")) // as released
	if err != nil || len(programs) == 0 {
		t.Errorf("the executor is not where its cell puts it: %v", err)
	}
	all.addFiles(t, p.vm, programs...)
	all.hold(t, map[string]string{"secret": r.Secret.Reveal(), "authtoken": p.token, "pairing string": auth.Pairing{URL: r.URL, Secret: r.Secret}.String()})
	must(t, p.kernel.Interrupt()) // the person stops the cell
	must(t, harness.Poll(within.Context(t), func() (bool, error) { return len(p.executors()) == 0, nil }))
}

// colabPage is a notebook in Colab's page on a VM with a real kernel, a release of the real
// executor, ngrok's edge, and a laptop.
type colabPage struct {
	t        *testing.T
	vm       string // folder with the VM's content, home and temp folders
	laptop   string
	edge     *ngroktest.Edge
	kernel   *standin.Kernel
	notebook *standin.Notebook
	options  standin.Options
	releases string // URL of the release's folder
	token    string // the authtoken of ngrok
	tabs     []*standin.Tab
}

func newColabPage(t *testing.T) *colabPage {
	t.Helper()
	vm, err := os.MkdirTemp("", "vm-") // a short path: sockets allow 107 bytes
	must(t, err)
	p := &colabPage{t: t, vm: vm, laptop: t.TempDir(), edge: ngroktest.Start(t), token: "2abc" + rand.Text(), notebook: standin.NewNotebook(standin.NewCell("code", "x = 1"))}
	t.Cleanup(func() {
		p.endExecutors()
		os.RemoveAll(vm)
	})
	for _, name := range []string{"content", "home", "tmp"} {
		must(t, os.Mkdir(filepath.Join(vm, name), 0o700))
	}
	p.kernel, err = standin.StartKernel(within.Context(t), standin.KernelOptions{Python: stacks.Old(t).Python, Dir: filepath.Join(vm, "content"), Env: []string{
		"HOME=" + filepath.Join(vm, "home"), "TMPDIR=" + filepath.Join(vm, "tmp"),
		"COLAB_RELAY_NGROK_SERVER=" + p.edge.Addr, "COLAB_RELAY_NGROK_CA=" + p.edge.CAFile,
		"EXECUTOR_SECRET=another secret, which the relay's replaces", "NGROK_AUTHTOKEN=another-token",
	}})
	must(t, err)
	t.Cleanup(p.kernel.Close)
	p.options = standin.Options{Notebook: p.notebook, Execute: p.kernel.Execute}
	p.releases = serveRelease(t)
	must(t, os.WriteFile(p.tokenFile(), []byte(p.token+"\n"), 0o600))
	return p
}

func (p *colabPage) tokenFile() string { return filepath.Join(p.laptop, "ngrok-token") }

// serveRelease serves a release with the executor that the tests use, and returns its URL.
func serveRelease(t *testing.T) string {
	t.Helper()
	program, err := os.ReadFile(binaries.Executor)
	must(t, err)
	sum := sha256.Sum256(program)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/r/v1.0.0/SHA256SUMS":
			fmt.Fprintf(w, "%x  executor-linux-amd64\n%[1]x  executor-linux-arm64\n", sum)
		case "/r/v1.0.0/executor-linux-amd64", "/r/v1.0.0/executor-linux-arm64":
			_, _ = w.Write(program)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL + "/r/v1.0.0"
}

// env is the environment of a relay that knows ngrok's token from a file.
func (p *colabPage) env() []string {
	return []string{
		"HOME=" + p.laptop, "XDG_CONFIG_HOME=" + p.laptop + "/config", "XDG_CACHE_HOME=" + p.laptop + "/cache", "XDG_DATA_HOME=" + p.laptop + "/data",
		"NGROK_AUTHTOKEN_FILE=" + p.tokenFile(), "COLAB_RELAY_RELEASE_URL=" + p.releases,
	}
}

// open opens a tab with the notebook at the URL that the relay made.
func (p *colabPage) open(url string) *standin.Tab {
	p.t.Helper()
	tab, err := standin.Dial(within.Context(p.t), url, p.options)
	must(p.t, err)
	p.t.Cleanup(tab.Close)
	p.tabs = append(p.tabs, tab)
	return tab
}

// executors are the executors on the VM that were started through the notebook, by the folders
// in which they meet its cells.
func (p *colabPage) executors() (pids []int) {
	files, _ := filepath.Glob(filepath.Join(p.vm, "tmp", "colab-relay-enroll-*", "pid"))
	for _, file := range files {
		var pid int
		if text, err := os.ReadFile(file); err == nil && json.Unmarshal(text, &pid) == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// endExecutors ends the VM's executors.
func (p *colabPage) endExecutors() {
	pids := p.executors()
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
	ctx, cancel := context.WithTimeout(context.Background(), within.Limit)
	defer cancel()
	for _, pid := range pids {
		if err := harness.Poll(ctx, func() (bool, error) { return ended(pid), nil }); err != nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			p.t.Errorf("the executor %d did not end: %v", pid, err)
		}
	}
}

// store is the laptop's list of paired runtimes.
func (p *colabPage) store() *pairing.Store {
	return pairing.Open(filepath.Join(p.laptop, "config", "colab-relay"))
}

// cells returns the sources of the notebook's cells.
func (p *colabPage) cells() (sources []string) {
	for _, c := range p.notebook.Cells() {
		sources = append(sources, strings.Join(c.Source, ""))
	}
	return sources
}
