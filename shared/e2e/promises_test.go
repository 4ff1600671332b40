package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/auth"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

// The tests of this file hold promises of README.md and SECURITY.md that no other test of this
// folder's short tier does. docs/promises.md names them all.

func TestAWrongSecretIsSaid(t *testing.T) {
	e := borrowExecutor(t, stacks.Old(t))
	h := startHost(t, e.Ready.LocalURL, harness.HostConfig{Env: []string{"COLAB_SECRET=" + strings.Repeat("another ", 8)}})
	a := quick(t, h, "open('ran', 'w')")
	if _, err := os.Stat(filepath.Join(e.Config.Dir, "ran")); a.Error() != "wrong_secret" || !os.IsNotExist(err) {
		t.Errorf("%s, %v", a.Text, err)
	}
}

func TestAKernelsVariablesAreSavedAndRestored(t *testing.T) {
	_, h := pair(t, stacks.Old(t))
	saved := map[string]any{"name": "kept"}
	want(t, quick(t, h, "rows = [{'n': n} for n in range(3)]\ndef double(n): return 2 * n"), map[string]any{"success": true})
	want(t, call(t, h, "save_kernel_state", saved), map[string]any{"success": true, "status": "saved"})
	want(t, call(t, h, "restart_kernel", nil), map[string]any{"success": true})
	want(t, quick(t, h, "'rows' in globals()"), map[string]any{"result": "False"})
	want(t, call(t, h, "restore_kernel_state", saved), map[string]any{"success": true, "status": "restored"})
	want(t, quick(t, h, "rows, double(21)"), map[string]any{"result": "([{'n': 0}, {'n': 1}, {'n': 2}], 42)"})
}

func TestADamagedStateIsNotUnpickled(t *testing.T) {
	e := borrowExecutor(t, stacks.Old(t))
	states := t.TempDir()
	h := startHost(t, e.Ready.LocalURL, harness.HostConfig{Env: []string{"CHECKPOINT_DIR=" + states}})
	saved := map[string]any{"name": "damaged"}
	want(t, quick(t, h, "class Payload:\n  def __reduce__(self): return open, ('payload ran', 'w')\npayload = Payload()"), map[string]any{"success": true})
	want(t, call(t, h, "save_kernel_state", saved), map[string]any{"success": true})
	marker := filepath.Join(e.Config.Dir, "payload ran")
	must(t, os.Remove(marker)) // the save loaded it once, as a trial
	data := ""
	for path := range allFiles(t, states) {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte("payload ran")) {
			data = path
			must(t, os.WriteFile(path, flipped(text, -1), 0o600))
		}
	}
	a := call(t, h, "restore_kernel_state", saved)
	if _, err := os.Stat(marker); data == "" || !a.IsError || !os.IsNotExist(err) {
		t.Errorf("damaged is %q, the payload's mark %v: %s", data, err, a.Text)
	}
	want(t, quick(t, h, "del payload, Payload"), map[string]any{"success": true})
}

// A folder travels in few requests: a batch, a page of a listing or a manifest, and a few more.
// A request or a connection for each file exceeds that.
func TestAFolderTravelsBothWays(t *testing.T) {
	const files, mostRequests, mostConnections = 50, 5, 10
	e := borrowExecutor(t, stacks.Old(t))
	w := newWire(t, e)
	dir := t.TempDir()
	h := startHost(t, "http://"+w.Addr, harness.HostConfig{Dir: dir, Env: []string{"LOCAL_SAVE_DIR=" + dir}})
	want(t, quick(t, h, "1"), map[string]any{"success": true}) // which asks for the instance
	for n := range files {
		path := filepath.Join(dir, "tree", "a", fmt.Sprint("é ", n))
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, fmt.Append(nil, "content ", n), 0o600))
	}
	move := func(tool string, args map[string]any) {
		w.CutAt()
		want(t, call(t, h, tool, args), map[string]any{"success": true})
		if cost := w.Traffic(); cost.Requests > mostRequests || cost.Connections > mostConnections {
			t.Errorf("%s took %d requests on %d new connections", tool, cost.Requests, cost.Connections)
		}
	}
	move("upload_to_colab", map[string]any{"local_path": filepath.Join(dir, "tree"), "remote_path": "tree"})
	move("download_from_colab", map[string]any{"remote_path": "tree", "local_filename": "back"})
	for _, copied := range []string{filepath.Join(e.Config.Dir, "tree"), filepath.Join(dir, "back")} {
		for n := range files {
			if text, err := os.ReadFile(filepath.Join(copied, "a", fmt.Sprint("é ", n))); string(text) != fmt.Sprint("content ", n) {
				t.Errorf("file %d of %s is %q: %v", n, copied, text, err)
			}
		}
	}
}

// Whoever carries an answer cannot forge it, and the code of the call ran once.
func TestAForgedAnswerIsNotBelieved(t *testing.T) {
	u := newTunnel(t, "30s")
	old, _ := u.before(isSubmit)
	for what, change := range map[string]func(message) message{
		"a bit of the tag":    func(m message) message { m.body = flipped(m.body, -1); return m },
		"another Signature":   func(m message) message { return headerFlip(m, "Signature") },
		"an earlier answer":   func(message) message { return old.answer },
		"an earlier body":     func(m message) message { m.body = old.answer.body; return m },
		"another status":      func(m message) message { m.status = http.StatusAccepted; return m },
		"an answer of nobody": nobody,
	} {
		u.refused(what, "runs.append(1)", isSubmit, func(m *middleman, request message) message { return change(m.forward(request)) }, "bad_answer", "not_executor")
		if ran := u.ran(); ran != "[1]" {
			t.Errorf("%s: the code ran %s, want once, whatever came back", what, ran)
		}
	}
	const same = "runs.append(1)\n'once'" // the same call again finds the run
	u.during("the same call", isSubmit, func(m *middleman, request message) message { return nobody(m.forward(request)) }, "run_code_quick", map[string]any{"code": same})
	want(t, quick(t, u.host, same), map[string]any{"result": "'once'"})
	if ran := u.ran(); ran != "[1]" {
		t.Errorf("called twice, the code ran %s", ran)
	}
}

// nobody is an answer that anybody can write.
func nobody(message) message {
	return message{status: http.StatusOK, header: http.Header{"Content-Type": {"application/json"}}, body: []byte(`{"status":"succeeded","result":"forged"}`)}
}

// What a session says and moves cannot be found on the line. The same search finds it in the
// opened messages.
func TestTheTunnelSeesNeitherSecretNorContent(t *testing.T) {
	e := borrowExecutor(t, stacks.Old(t))
	w := newWire(t, e)
	w.Record()
	dir := t.TempDir()
	h := startHost(t, "http://"+w.Addr, harness.HostConfig{Dir: dir, Env: []string{"LOCAL_SAVE_DIR=" + dir}})
	s := &session{marks: map[string]string{}}
	local := filepath.Join(dir, s.mark("local name"))
	must(t, os.WriteFile(local, []byte(s.mark("content of a file")), 0o600))
	want(t, call(t, h, "upload_to_colab", map[string]any{"local_path": local, "remote_path": s.mark("name of a file")}), map[string]any{"success": true})
	want(t, call(t, h, "download_from_colab", map[string]any{"remote_path": s.marks["name of a file"], "local_filename": "back"}), map[string]any{"success": true})
	a := quick(t, h, fmt.Sprintf("print(%s) # %s", spelled(s.mark("output")), s.mark("code")))
	want(t, a, map[string]any{"stdout": s.marks["output"] + "\n"})
	call(t, h, "list_colab_files", map[string]any{"path": s.mark("name of a folder")})
	call(t, h, "inspect_variable", map[string]any{"name": s.mark("name of a variable")})
	h.Close()
	w.Close()
	delete(s.marks, "local name") // it stays on the laptop
	var line [][]byte
	for _, c := range w.Recorded() {
		line = append(line, c.Up, c.Down)
	}
	seen, opened := viewsOf(line...), viewsOf(unsealed(t, w.Recorded())...)
	if form := find(secret, seen); form != "" {
		t.Errorf("the secret is on the line, %s", form)
	}
	for kind, mark := range s.marks {
		if form := find(mark, seen); form != "" {
			t.Errorf("the %s is on the line, %s", kind, form)
		}
		if find(mark, opened) == "" {
			t.Errorf("the search does not find the %s in the opened messages", kind)
		}
	}
}

func TestCodeFindsNoSecretInItsEnvironment(t *testing.T) {
	_, h := pair(t, stacks.Old(t))
	a := quick(t, h, fmt.Sprintf("import os, subprocess\ntext = repr(os.environ) + subprocess.check_output(['env'], text=True)\n%q + %q in text, 'EXECUTOR_SECRET' in text", secret[:9], secret[9:]))
	want(t, a, map[string]any{"success": true, "result": "(False, False)"})
}

func TestAPictureIsShownAndSaved(t *testing.T) {
	e := borrowExecutor(t, stacks.Old(t))
	dir := t.TempDir()
	h := startHost(t, e.Ready.LocalURL, harness.HostConfig{Dir: dir, Env: []string{"LOCAL_SAVE_DIR=" + dir + "/saved"}})
	a := quick(t, h, fmt.Sprintf("from IPython.display import Image, display\nimport base64\ndisplay(Image(data=base64.b64decode(%q), format='png'))", pictureOf(t, 3000)))
	if len(a.Images) != 1 || a.Images[0].MIMEType != "image/png" || len(a.Images[0].Data) == 0 {
		t.Fatalf("%d images: %s", len(a.Images), a.Text)
	}
	saved, err := filepath.Glob(filepath.Join(dir, "saved", "*", "*", "*.png"))
	if len(saved) != 1 || !strings.Contains(a.Text, saved[0]) {
		t.Errorf("saved %q (%v); the answer says: %s", saved, err, a.Text)
	}
}

func TestTheProbeDescribesTheMachine(t *testing.T) {
	_, h := pair(t, stacks.Old(t))
	a := call(t, h, "probe_colab_environment", nil)
	want(t, a, map[string]any{"success": true})
	for _, word := range []string{"CPU", "GPU", "Python", "Disk"} {
		if !strings.Contains(a.Text, word) {
			t.Errorf("%q is missing: %s", word, a.Text)
		}
	}
	if a := call(t, h, "check_colab_connection", nil); a.Fields["success"] != true || !strings.Contains(a.Text, "idle") {
		t.Errorf("%s", a.Text)
	}
}

// A person pairs, runs code, watches, and keeps what was run when the VM is gone.
func TestAPersonPairsRunsAndKeepsTheHistory(t *testing.T) {
	e := borrowExecutor(t, stacks.Old(t))
	network := newMiddleman(t, e.Ready.LocalURL)
	l := newLaptop(t)
	key, err := auth.NewSecret(secret)
	must(t, err)
	l.relay("pair", auth.Pairing{URL: network.URL, Secret: key}.String())
	if out := l.relay("status"); !strings.Contains(out, "connected") {
		t.Errorf("status: %s", out)
	}
	if out := l.relay("run", "-c", "mine = 6 * 7; print(mine)"); out != "42\n" {
		t.Errorf("run printed %q", out)
	}
	if out := l.relay("vars"); !strings.Contains(out, "mine") {
		t.Errorf("vars: %s", out)
	}
	failed := l.command("run", "-c", "import sys; sys.exit(3)")
	if err := failed.Run(); failed.ProcessState.ExitCode() != 3 {
		t.Errorf("sys.exit(3) became %v", err)
	}
	if out := l.relay("doctor"); !strings.Contains(out, "ok") {
		t.Errorf("doctor: %s", out)
	}
	network.Close()
	if out := l.relay("ps"); !strings.Contains(out, "mine = 6 * 7") {
		t.Errorf("ps: %s", out)
	}
	l.relay("export", "session.ipynb")
	if text, err := os.ReadFile(filepath.Join(l.dir, "session.ipynb")); err != nil || !bytes.Contains(text, []byte("mine = 6 * 7")) || !bytes.Contains(text, []byte("42")) {
		t.Errorf("the exported notebook is %s: %v", text, err)
	}
}
