package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/auth"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/line/linetest"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// session is what a tunnel carries in a test: each kind of content has its own mark.
type session struct {
	t       *testing.T
	vm      *harness.Executor
	host    *harness.Host
	workdir string
	laptop  string
	marks   map[string]string
}

// mark returns the mark of a kind of content. It is a valid name in Python and in a path.
func (s *session) mark(kind string) string {
	m := "zqx" + strings.ReplaceAll(kind, " ", "") + "7Kd93Vb2Lm5"
	s.marks[kind] = m
	return m
}

// spelled is an expression of Python for text that the code does not contain.
func spelled(text string) string {
	return fmt.Sprintf("'%s' + '%s'", text[:5], text[5:])
}

func TestTheTunnelSeesNoContent(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	s := &session{t: t, marks: map[string]string{}, laptop: t.TempDir()}
	s.workdir = filepath.Join(t.TempDir(), s.mark("working folder"))
	if err := os.Mkdir(s.workdir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.vm = startExecutor(t, harness.ExecutorConfig{Python: stacks.Old(t).Python, Dir: s.workdir})
	w, err := harness.NewWire(strings.TrimPrefix(s.vm.Ready.LocalURL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.Record()
	s.host = startHost(t, "http://"+w.Addr, harness.HostConfig{Dir: s.laptop, Env: []string{
		"LOCAL_SAVE_DIR=" + s.laptop + "/saved", "CHECKPOINT_DIR=" + s.laptop + "/checkpoints",
	}})
	s.runs()
	s.failures()
	s.files()
	s.folders()
	s.long()
	s.host.Close()
	w.Close()
	captured := w.Recorded()

	var line [][]byte
	for _, c := range captured {
		line = append(line, c.Up, c.Down)
	}
	seen, opened := viewsOf(line...), viewsOf(unsealed(t, captured)...)
	if form := find(secret, seen); form != "" {
		t.Errorf("the secret is on the line, %s", form)
	}
	for kind, mark := range s.marks {
		if form := find(mark, seen); form != "" {
			t.Errorf("the mark of the %s is on the line, %s", kind, form)
		}
		if find(mark, opened) == "" {
			t.Errorf("the session did not carry the %s: the same search does not find it in the opened messages", kind)
		}
	}
}

func (s *session) ok(tool string, args map[string]any) harness.Answer {
	s.t.Helper()
	a := call(s.t, s.host, tool, args)
	if a.IsError {
		s.t.Errorf("%s: %s", tool, a.Text)
	}
	return a
}

func (s *session) runs() {
	variable := s.mark("variable")
	s.ok("run_code_quick", map[string]any{"code": "# " + s.mark("comment") + "\n" + variable + " = [1, 2]\nprint(" + spelled(s.mark("output")) + ")\n" + spelled(s.mark("result"))})
	s.ok("run_code_quick", map[string]any{"code": "import sys\nprint(" + spelled(s.mark("stderr")) + ", file=sys.stderr)"})
	s.ok("run_code_quick", map[string]any{"code": "from IPython.display import HTML\nHTML((" + spelled(s.mark("rich output")) + ") * 5000)"})
	s.ok("run_code_quick", map[string]any{"code": "for n in range(20000): print(" + spelled(s.mark("long output")) + ", n)"})
	s.ok("list_colab_variables", nil)
	s.ok("inspect_variable", map[string]any{"name": variable})

	asked := s.ok("run_code_quick", map[string]any{"code": "len(input(" + spelled(s.mark("prompt")) + "))"})
	s.ok("provide_input", map[string]any{"execution_id": asked.String("execution_id"), "text": s.mark("input")})
	s.ok("get_execution", map[string]any{"execution_id": asked.String("execution_id"), "wait_seconds": 20})
	s.ok("list_executions", nil)
	s.ok("probe_colab_environment", nil)
	s.ok("check_colab_connection", nil)
}

func (s *session) failures() {
	failing := "def " + s.mark("function") + "():\n  raise ValueError(" + spelled(s.mark("exception")) + ")\n" + s.marks["function"] + "()"
	call(s.t, s.host, "run_code_quick", map[string]any{"code": failing})
	call(s.t, s.host, "list_colab_files", map[string]any{"path": "/etc/" + s.mark("forbidden path")})
	call(s.t, s.host, "inspect_variable", map[string]any{"name": s.mark("unknown variable")})
}

func (s *session) files() {
	text := bytes.Repeat([]byte(s.mark("content of a file")+" "), 50_000)
	local := filepath.Join(s.laptop, s.mark("name of a file"))
	if err := os.WriteFile(local, text, 0o600); err != nil {
		s.t.Fatal(err)
	}
	folder := s.mark("name of a folder")
	there := folder + "/" + filepath.Base(local)
	s.ok("upload_to_colab", map[string]any{"local_path": local, "remote_path": there})
	if got, err := os.ReadFile(filepath.Join(s.workdir, there)); err != nil || !bytes.Equal(got, text) {
		s.t.Errorf("on the VM: %d bytes, %v", len(got), err)
	}
	down := bytes.Repeat([]byte(s.mark("content of a download")+" "), 50_000)
	if err := os.WriteFile(filepath.Join(s.workdir, folder, s.mark("name of a download")), down, 0o600); err != nil {
		s.t.Fatal(err)
	}
	a := s.ok("download_from_colab", map[string]any{"remote_path": folder + "/" + s.marks["name of a download"]})
	if got, err := os.ReadFile(a.String("local_path")); err != nil || !bytes.Equal(got, down) {
		s.t.Errorf("on the laptop: %d bytes, %v", len(got), err)
	}
	s.ok("list_colab_files", map[string]any{"path": folder})
}

func (s *session) folders() {
	for _, c := range []struct{ where, name, content string }{
		{s.laptop + "/tree/", s.mark("name in an upload"), s.mark("content in an upload")},
		{s.workdir + "/tree2/", s.mark("name in a download"), s.mark("content in a download")},
	} {
		for _, path := range []string{c.name, "sub/" + c.name, "other/" + c.name} {
			if err := os.MkdirAll(filepath.Dir(c.where+path), 0o700); err != nil {
				s.t.Fatal(err)
			}
			if err := os.WriteFile(c.where+path, []byte(c.content), 0o600); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	s.ok("upload_to_colab", map[string]any{"local_path": s.laptop + "/tree", "remote_path": "tree"})
	s.ok("download_from_colab", map[string]any{"remote_path": "tree2"})
}

func (s *session) long() {
	s.ok("run_code_long", map[string]any{"code": "# " + s.mark("long run") + "\nimport time\ntime.sleep(.1)"})
	s.ok("run_chunked_operation", map[string]any{
		"setup_code": "# " + s.mark("setup") + "\nitems = []", "loop_code": "items.append({i})\nprint(" + spelled(s.mark("output of a loop")) + ")",
		"n_iterations": 6, "batch_size": 2, "checkpoint_name": "steps",
	})
	s.ok("save_kernel_state", map[string]any{"name": "state"})
	s.ok("restart_kernel", nil)
	s.ok("run_code_quick", map[string]any{"code": "import os\n[os.remove(f) for f in os.listdir('.') if os.path.isfile(f)]"})
	s.ok("restore_kernel_state", map[string]any{"name": "state"})
	s.ok("cleanup_colab", nil)
}

// unsealed opens the captured messages as holders of the secret do, and returns their
// queries and bodies.
func unsealed(t *testing.T, captured []harness.Recording) (texts [][]byte) {
	t.Helper()
	key, err := auth.NewSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	vm := linetest.NewExecutor(key, instanceIn(t, captured), time.Now)
	for _, c := range captured {
		up, down := bufio.NewReader(bytes.NewReader(c.Up)), bufio.NewReader(bytes.NewReader(c.Down))
		for {
			req, err := http.ReadRequest(up)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal("in the capture:", err)
			}
			x, body, err := vm.Open(req)
			if err != nil {
				t.Fatalf("%s %s: %v", req.Method, req.URL.Path, err)
			}
			texts = append(texts, []byte(req.URL.RawQuery), body)
			res, err := http.ReadResponse(down, req)
			if err != nil {
				break // the session ended before the answer
			}
			if x == nil { // GET /health, which is open to all
				_, _ = io.Copy(io.Discard, res.Body)
				continue
			}
			text, err := linetest.Open(x, res, res.Body, false)
			if err != nil {
				t.Fatalf("the answer to %s %s: %v", req.Method, req.URL.Path, err)
			}
			texts = append(texts, text)
		}
	}
	return texts
}

// instanceIn returns the executor that answered first.
func instanceIn(t *testing.T, captured []harness.Recording) contract.Instance {
	t.Helper()
	for _, c := range captured {
		if res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(c.Down)), nil); err == nil {
			instance, err := contract.ParseInstance(res.Header.Get(contract.HeaderInstance))
			if err != nil {
				t.Fatal(err)
			}
			return instance
		}
	}
	t.Fatal("nothing was captured")
	return contract.Instance{}
}
