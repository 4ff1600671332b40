package bootstrap

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// made holds the programs of a release for this machine, built once by make programs.
var made struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if made.dir != "" {
		os.RemoveAll(filepath.Dir(made.dir))
	}
	os.Exit(code)
}

// realRelease serves a real release on loopback. It holds only the executor for this
// machine.
func realRelease(t *testing.T) (r Release, relay string) {
	t.Helper()
	made.once.Do(func() { made.dir, made.err = makeRelease() })
	if made.err != nil {
		t.Fatal(made.err)
	}
	server := httptest.NewServer(http.StripPrefix("/releases/v0-test/", http.FileServer(http.Dir(made.dir))))
	t.Cleanup(server.Close)
	executor, err := os.ReadFile(filepath.Join(made.dir, "executor-linux-"+runtime.GOARCH))
	if err != nil {
		t.Fatal(err)
	}
	r = Release{Releases: server.URL + "/releases", Version: "v0-test", SHA256AMD64: digestOf(string(executor)), SHA256ARM64: digestOf(string(executor))}
	return r, filepath.Join(made.dir, "relay-linux-"+runtime.GOARCH)
}

func makeRelease() (string, error) {
	tmp, err := os.MkdirTemp("", "release-")
	if err != nil {
		return "", err
	}
	dir, platform := filepath.Join(tmp, "dist"), "linux-"+runtime.GOARCH
	cmd := exec.Command("make", "programs", "DIST="+dir, "VERSION=v0-test", "EXECUTORS="+platform, "RELAYS="+platform, "RELEASES=")
	cmd.Dir = stacks.Root()
	for _, pair := range os.Environ() { // the settings of make test are not for this make
		if !strings.HasPrefix(pair, "MAKE") && !strings.HasPrefix(pair, "MFLAGS") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, errors.New("make programs: " + err.Error() + "\n" + string(out))
	}
	return dir, nil
}

// colab returns a VM whose page grants an ngrok token, and the edge that it uses.
func colab(t *testing.T, s stacks.Stack) (*vm, *ngroktest.Edge, string) {
	t.Helper()
	r, relay := realRelease(t)
	edge := ngroktest.Start(t)
	v := newVM(t, r)
	v.python(s.Python)
	v.onColab(map[string]pageSecret{"NGROK_AUTHTOKEN": granted(testToken)})
	v.env["COLAB_RELAY_NGROK_SERVER"], v.env["COLAB_RELAY_NGROK_CA"] = edge.Addr, edge.CAFile
	v.fill("FLAGS", `"--listen 127.0.0.1:0"`)
	return v, edge, relay
}

var pairingLine = regexp.MustCompile(`(?m)^ +(colab-relay:\S+)\s*$`)

// pairing returns the pairing string that the cell shows, or "".
func (p *page) pairing() string {
	if found := pairingLine.FindStringSubmatch(p.Shown.String()); found != nil {
		return found[1]
	}
	return ""
}

// awaitUp waits until the page shows the pairing string and that code can run.
func (p *page) awaitUp(t *testing.T) {
	t.Helper()
	within.Until(t, "the executor is up", func() bool {
		select {
		case <-p.Ended:
			t.Fatal("the cell ended")
		default:
		}
		return p.pairing() != "" && strings.Contains(p.Shown.String(), "  kernel ")
	})
}

// paired returns an MCP host on a laptop that is paired with the printed string.
func paired(t *testing.T, relay, pairing string) *harness.Host {
	t.Helper()
	laptop := t.TempDir()
	cmd := exec.Command(relay, "pair", pairing)
	cmd.Env = []string{"HOME=" + laptop, "XDG_CONFIG_HOME=" + laptop + "/config", "XDG_CACHE_HOME=" + laptop + "/cache"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("relay pair: %v\n%s", err, out)
	}
	h, err := harness.StartHost(within.Context(t), harness.HostConfig{Binary: relay, Dir: laptop})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// pids returns the process ids of the kernel and its parent, by an MCP call.
func pids(t *testing.T, h *harness.Host) (kernel, executor int) {
	t.Helper()
	a, err := h.Call(within.Context(t), "run_code_quick", map[string]any{"code": "import os\nprint(os.getpid(), os.getppid(), end='')"})
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(a.String("stdout"), " ")
	kernel, err = strconv.Atoi(first)
	if err == nil {
		executor, err = strconv.Atoi(second)
	}
	if err != nil {
		t.Fatalf("the call answered %s", a.Text)
	}
	return kernel, executor
}

// gone says whether a process has ended. A zombie counts as ended.
func gone(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}

// stop does what Colab's stop button does: it sends SIGINT to the process group of the
// notebook's kernel, twice within milliseconds.
func (p *page) stop(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for range 2 {
		if err := syscall.Kill(-p.kernel, syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheNotebookStartsARealReleaseAndAStopEndsEverything(t *testing.T) {
	tier.Long(t)
	v, edge, relay := colab(t, stacks.Old(t))
	p := v.open()
	p.awaitUp(t)
	h := paired(t, relay, p.pairing())
	kernel, executor := pids(t, h)
	if !edge.Online(edge.URL()) || gone(kernel) || gone(executor) {
		t.Fatal("it does not run: the test would show nothing")
	}
	shown := v.shown(p.Shown.String())
	for _, want := range []string{
		"EXECUTOR_SECRET: it is not in Colab's Secrets (the key on the left); the executor generates one",
		"colab-relay executor v0-test", "public   " + edge.URL(), "curl -s " + edge.URL() + "/health",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("under the cell there is no %q", want)
		}
	}
	p.stop(t)
	within.Until(t, "executor, kernel and tunnel are gone after a stop", func() bool {
		return gone(kernel) && gone(executor) && !edge.Online(edge.URL())
	})
	p.await(t)
	if shown := p.Shown.String(); !strings.Contains(shown, "\nstopped; ") || strings.Contains(shown, "KeyboardInterrupt") {
		t.Errorf("the executor did not shut down in order:\n%s", shown)
	}
}
