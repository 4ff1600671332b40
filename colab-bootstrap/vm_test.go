package bootstrap

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

const (
	testSecret = "the-executors-secret-0123456789abcdef"
	testToken  = "2abcTheTokenOfTheAccount_9"
	testDomain = "lab $HOME {x}.ngrok.app" // a shell or IPython would change this
)

// vm is a machine on which the cell runs: the kernel's folder and environment.
type vm struct {
	t    *testing.T
	dir  string
	cell string
	env  map[string]string
}

// newVM returns a plain machine, neither Colab nor Kaggle, with the release's cell. The
// test then runs in parallel with others: such tests mostly wait for processes.
func newVM(t *testing.T, r Release) *vm {
	t.Helper()
	t.Parallel()
	cell, err := Cell(r)
	if err != nil {
		t.Fatal(err)
	}
	v := &vm{t: t, dir: t.TempDir(), cell: cell, env: map[string]string{
		"HOME": t.TempDir(), "IPYTHONDIR": t.TempDir(), "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1",
	}}
	v.python(stacks.Old(t).Python)
	return v
}

// python sets the interpreter of the notebook, which is also python3 on PATH.
func (v *vm) python(path string) {
	v.env["KERNEL_PYTHON"], v.env["PATH"] = path, filepath.Dir(path)+":"+os.Getenv("PATH")
}

// fill sets one of the form's fields.
func (v *vm) fill(field, value string) {
	v.t.Helper()
	for _, empty := range []string{`""`, "False"} {
		if line := "\n" + field + " = " + empty + " #@param"; strings.Contains(v.cell, line) {
			v.cell = strings.Replace(v.cell, line, "\n"+field+" = "+value+" #@param", 1)
			return
		}
	}
	v.t.Fatalf("the form has no field %s", field)
}

// onColab gives the machine the stand-in for google.colab, and sets the page's Secrets.
func (v *vm) onColab(secrets map[string]pageSecret) {
	v.env["PYTHONPATH"] = v.testdata("colab")
	v.secrets(secrets)
}

// onKaggle gives the machine Kaggle's variables and client, and google.colab, which Kaggle
// has too.
func (v *vm) onKaggle(secrets map[string]pageSecret) {
	v.env["PYTHONPATH"] = v.testdata("kaggle") + ":" + v.testdata("colab")
	v.env["KAGGLE_KERNEL_RUN_TYPE"] = "Interactive"
	v.env["KAGGLE_USER_SECRETS_TOKEN"] = "a-token-of-kaggle"
	v.secrets(secrets)
}

// pageSecret is the page's answer to GetSecret.
type pageSecret struct {
	Exists  bool   `json:"exists"`
	Access  bool   `json:"access"`
	Payload string `json:"payload"`
}

func granted(value string) pageSecret { return pageSecret{Exists: true, Access: true, Payload: value} }

func (v *vm) secrets(secrets map[string]pageSecret) {
	v.t.Helper()
	text, err := json.Marshal(secrets)
	if err != nil {
		v.t.Fatal(err)
	}
	v.env["PAGE_SECRETS"] = string(text)
}

func (v *vm) testdata(name string) string {
	v.t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		v.t.Fatal(err)
	}
	return path
}

func (v *vm) environ() []string {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(v.env)) {
		env = append(env, name+"="+v.env[name])
	}
	return env
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

// run runs the cell in a terminal's IPython of Colab's kernel stack, and returns what
// it shows.
func (v *vm) run() string {
	v.t.Helper()
	file := filepath.Join(v.t.TempDir(), "cell.ipy")
	write(v.t, file, v.cell)
	cmd := exec.CommandContext(v.t.Context(), v.env["KERNEL_PYTHON"], "-m", "IPython", "--colors=NoColor", file)
	cmd.Dir, cmd.Env = v.dir, v.environ()
	out, err := cmd.CombinedOutput()
	if err != nil {
		v.t.Fatalf("IPython: %v\n%s", err, out)
	}
	return v.shown(string(out))
}

// shown returns the trimmed text, which must hold neither a traceback nor a secret.
func (v *vm) shown(out string) string {
	v.t.Helper()
	text := strings.TrimSpace(out)
	if strings.Contains(text, "Traceback") || strings.Contains(text, testSecret) || strings.Contains(text, testToken) {
		v.t.Errorf("the cell showed a traceback or a secret:\n%s", text)
	}
	return text
}

// page is an open notebook whose cell runs.
type page struct {
	Shown *harness.Output // the cell's output
	Ended chan struct{}   // closed when the cell and its kernel have ended

	mu     sync.Mutex
	kernel int // process id
	asked  []string
	err    string
}

// open opens the notebook and runs it by nbclient.
func (v *vm) open() *page {
	v.t.Helper()
	text, err := notebook(intro, v.cell)
	if err != nil {
		v.t.Fatal(err)
	}
	file := filepath.Join(v.t.TempDir(), "colab-relay.ipynb")
	write(v.t, file, string(text))
	cmd := exec.Command(stacks.Notebook(v.t), v.testdata("page.py"), file, v.dir)
	cmd.Env = v.environ()
	faults := &harness.Output{}
	cmd.Stderr = faults
	out, err := cmd.StdoutPipe()
	if err != nil {
		v.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	p := &page{Shown: &harness.Output{}, Ended: make(chan struct{}), err: "the page ended without a report"}
	go func() {
		defer close(p.Ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.hear(lines.Bytes())
		}
		_ = cmd.Wait()
	}()
	v.t.Cleanup(func() {
		p.close()
		_ = cmd.Process.Kill()
		<-p.Ended
		if v.t.Failed() {
			v.t.Logf("the cell showed:\n%s\nthe page's errors:\n%s", p.Shown, faults)
		}
	})
	return p
}

// close ends a notebook whose cell still runs. Like "Restart session", it kills the
// kernel's process group.
func (p *page) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.Ended:
	default:
		if p.kernel != 0 {
			_ = syscall.Kill(-p.kernel, syscall.SIGKILL)
		}
	}
}

// hear processes one line from page.py, whose docstring describes them.
func (p *page) hear(line []byte) {
	var said struct {
		Kernel int     `json:"kernel"`
		Asked  string  `json:"asked"`
		Text   string  `json:"text"`
		Ended  *string `json:"ended"`
	}
	if json.Unmarshal(line, &said) != nil {
		return
	}
	_, _ = p.Shown.Write([]byte(said.Text))
	p.mu.Lock()
	defer p.mu.Unlock()
	if said.Kernel != 0 {
		p.kernel = said.Kernel
	}
	if said.Asked != "" {
		p.asked = append(p.asked, said.Asked)
	}
	if said.Ended != nil {
		p.err = *said.Ended
	}
}

// await waits until the cell has ended. It fails if the cell failed.
func (p *page) await(t *testing.T) {
	t.Helper()
	within.Receive(t, "the end of the cell", p.Ended)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != "" {
		t.Fatalf("the notebook ended with: %s", p.err)
	}
}

// runPage opens the notebook, waits for its end and returns what the cell showed.
func (v *vm) runPage() (string, *page) {
	v.t.Helper()
	p := v.open()
	p.await(v.t)
	return v.shown(p.Shown.String()), p
}
