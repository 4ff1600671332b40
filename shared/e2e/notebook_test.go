package e2e

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// validator checks notebooks with nbformat, in one Python process.
type validator struct {
	in  io.WriteCloser
	out *bufio.Reader
}

const validate = `
import sys, json, nbformat
for line in sys.stdin:
    try:
        nb = nbformat.read(json.loads(line), as_version=nbformat.NO_CONVERT)
        nbformat.validate(nb)
        print("valid", flush=True)
    except Exception as e:
        print(repr(e).replace("\n", " "), flush=True)
`

// startValidator returns nil in short tests, which have no nbformat.
func startValidator(t *testing.T) *validator {
	t.Helper()
	if testing.Short() {
		return nil
	}
	cmd := exec.Command(stacks.Notebook(t), "-W", "error", "-c", validate)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	return &validator{in, bufio.NewReader(out)}
}

func (v *validator) check(t *testing.T, path string) {
	t.Helper()
	if v == nil {
		return
	}
	name, err := json.Marshal(path)
	must(t, err)
	_, err = v.in.Write(append(name, '\n'))
	must(t, err)
	if got, err := v.out.ReadString('\n'); err != nil || got != "valid\n" {
		t.Errorf("nbformat says of %s: %s %v", filepath.Base(path), got, err)
	}
}

// desk is a host that works on one notebook.
type desk struct {
	t *testing.T
	*harness.Host
	*validator
	path string
}

// call calls a tool about the notebook, which must be valid afterwards. Arguments are in pairs.
func (d desk) call(tool string, pairs ...any) harness.Answer {
	d.t.Helper()
	args := map[string]any{"notebook_path": d.path}
	for pair := range slices.Chunk(pairs, 2) {
		args[pair[0].(string)] = pair[1]
	}
	a := call(d.t, d.Host, tool, args)
	d.check(d.t, d.path)
	return a
}

// cell returns a cell as get_cells shows it.
func (d desk) cell(id string) map[string]any {
	d.t.Helper()
	cells, _ := d.call("get_cells", "cell_id", id).Fields["cells"].([]any)
	if len(cells) != 1 {
		d.t.Fatalf("cell %s: %v", id, cells)
	}
	return cells[0].(map[string]any)
}

// done repeats run_notebook while it can continue.
func (d desk) done(pairs ...any) harness.Answer {
	d.t.Helper()
	a := d.call("run_notebook", pairs...)
	for tries := 0; a.Fields["can_continue"] == true && !a.IsError && tries < 100; tries++ {
		a = d.call("run_notebook", pairs...)
	}
	return a
}

// An agent makes a notebook, runs its cells, changes it and runs it as a whole, on both stacks. The
// file is valid after every call.
func TestAnAgentWorksOnANotebook(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		e := borrowExecutor(t, s)
		dir := t.TempDir()
		h := startHost(t, e.Ready.LocalURL, harness.HostConfig{Dir: dir, Args: []string{"serve", "--toolsets", "notebook"}})
		d := desk{t, h, startValidator(t), filepath.Join(dir, "work.ipynb")}

		first := d.call("add_code_cell", "code", "n = 20\nprint('n is', n)").String("cell_id")
		second := d.call("add_code_cell", "code", "n / 0", "afterCellId", first).String("cell_id")
		third := d.call("add_code_cell", "code", "n * 2").String("cell_id")
		title := d.call("add_text_cell", "content", "# Work", "cell_index", 0).String("cell_id")

		a := d.call("run_code_cell", "cellId", first)
		want(t, a, map[string]any{"success": true, "status": "succeeded", "stdout": "n is 20\n"})
		if got := fmt.Sprint(d.cell(first)["state"], d.cell(third)["state"]); got != "cleannever_run" {
			t.Errorf("states %s", got)
		}
		if out := fmt.Sprint(d.cell(first)["outputs"]); !strings.Contains(out, "n is 20") {
			t.Errorf("outputs in the file: %s", out)
		}
		a = d.call("run_code_cell", "cell_id", second)
		want(t, a, map[string]any{"success": false, "status": "failed"})
		if a.Error() != "failed" || !a.IsError || !strings.Contains(a.Text, "ZeroDivisionError") {
			t.Errorf("%s", a.Text)
		}
		a = d.call("run_code_cell", "cellId", title)
		if a.Error() != "bad_request" || !strings.Contains(a.Text, "not a code cell") {
			t.Errorf("%s", a.Text)
		}

		digest := d.call("get_cells").String("digest")
		d.call("update_cell", "cellId", first, "find", "20", "content", "21", "dry_run", true)
		a = d.call("update_cell", "cellId", first, "find", "20", "content", "21", "expect_digest", digest)
		want(t, a, map[string]any{"success": true})
		if got := d.cell(first); got["state"] != "dirty" || !strings.Contains(fmt.Sprint(got["outputs"]), "n is 20") {
			t.Errorf("after the edit: %v", got)
		}
		a = d.call("update_cell", "cellId", first, "content", "", "expectDigest", digest)
		if a.Error() != "changed" {
			t.Errorf("%s", a.Text)
		}

		a = d.done()
		want(t, a, map[string]any{"success": false, "status": "failed", "can_continue": false})
		if counts := fmt.Sprint(a.Fields["counts"]); !a.IsError || counts != "map[failed:1 not_run:1 succeeded:1]" || !strings.Contains(a.Text, "ZeroDivisionError") || !strings.Contains(a.Text, "n is 21") {
			t.Errorf("%v %s", counts, a.Text)
		}
		d.call("update_cell", "cellId", second, "content", "n / 7")
		a = d.call("run_notebook", "cells", "dirty", "dry_run", true)
		want(t, a, map[string]any{"success": true, "status": "planned"})
		a = d.done("cells", "dirty")
		want(t, a, map[string]any{"success": true, "status": "succeeded"})
		if out := fmt.Sprint(d.cell(second)["outputs"], d.cell(third)["outputs"]); !strings.Contains(out, "3.0") || !strings.Contains(out, "42") {
			t.Errorf("%s", out)
		}
		d.call("move_cell", "cellId", title, "cellIndex", -1)
		d.call("delete_cell", "cellId", second)
		if got := d.call("get_cells").Int("cell_count"); got != 3 {
			t.Errorf("%d cells", got)
		}
	})
}

// A cell that outlasts the call is waited for by the same call, which also saves its outputs; so is
// one that asks for input.
func TestACellOutlastsItsCall(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	e := borrowExecutor(t, stacks.Old(t))
	dir := t.TempDir()
	h := startHost(t, e.Ready.LocalURL, harness.HostConfig{Dir: dir, Env: []string{"RELAY_HOLD=2s", "RELAY_TOOLSETS=all"}})
	d := desk{t, h, startValidator(t), filepath.Join(dir, "n.ipynb")}
	signal := filepath.Join(t.TempDir(), "go")
	id := d.call("add_code_cell", "code", fmt.Sprintf("import os, time\nprint('begun', flush=True)\nwhile not os.path.exists(%q): time.sleep(.01)\nname = input('name? ')\nname", signal)).String("cell_id")
	a := d.call("run_code_cell", "cellId", id, "timeout_seconds", 60)
	want(t, a, map[string]any{"success": true, "status": "running"})
	if next := a.String("next_command"); next != fmt.Sprintf(`run_code_cell(cellId=%q, timeout_seconds=60, notebook_path=%q)`, id, d.path) {
		t.Errorf("next_command %s", next)
	}
	var got map[string]any
	must(t, harness.Poll(within.Context(t), func() (bool, error) {
		if got = d.cell(id); strings.Contains(fmt.Sprint(got["outputs"]), "begun") {
			return true, nil
		}
		d.call("run_code_cell", "cellId", id, "timeout_seconds", 60)
		return false, nil
	}))
	if got["state"] != "running" {
		t.Errorf("%v", got)
	}
	a = d.call("update_cell", "cellId", id, "find", "name? ", "content", "who? ")
	want(t, a, map[string]any{"success": true})
	if a = d.call("run_code_cell", "cellId", id); a.Error() != "conflict" {
		t.Errorf("%s", a.Text)
	}
	d.call("update_cell", "cellId", id, "find", "who? ", "content", "name? ")
	must(t, os.WriteFile(signal, nil, 0o600))
	must(t, harness.Poll(within.Context(t), func() (bool, error) {
		a = d.call("run_code_cell", "cellId", id)
		return a.String("status") == "waiting_for_input", nil
	}))
	want(t, a, map[string]any{"success": true, "input_prompt": "name? "})
	if next := a.String("next_command"); !strings.HasPrefix(next, "provide_input(") || !strings.Contains(next, ", then run_code_cell(") {
		t.Errorf("next_command %s", next)
	}
	want(t, call(t, h, "provide_input", map[string]any{"execution_id": a.String("execution_id"), "text": "Ada"}), map[string]any{"success": true})
	must(t, harness.Poll(within.Context(t), func() (bool, error) {
		a = d.call("run_code_cell", "cellId", id)
		return a.String("status") == "succeeded", nil
	}))
	if out := fmt.Sprint(d.cell(id)["outputs"]); !strings.Contains(out, "begun") || !strings.Contains(out, "Ada") {
		t.Errorf("outputs in the file: %s", out)
	}
}

// A run that outlasts its call tells its progress, and next_command continues it.
func TestARunOfANotebookTellsItsProgress(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	e := borrowExecutor(t, stacks.Old(t))
	dir := t.TempDir()
	messages := make(chan string, 1000)
	h := startHost(t, e.Ready.LocalURL, harness.HostConfig{Dir: dir, Env: []string{"RELAY_HOLD=3s", "RELAY_TOOLSETS=notebook"}, Progress: func(m string) {
		select {
		case messages <- m:
		default:
		}
	}})
	d := desk{t, h, startValidator(t), filepath.Join(dir, "n.ipynb")}
	signal := filepath.Join(t.TempDir(), "go")
	d.call("add_code_cell", "code", "#@title Prepare\n1")
	d.call("add_code_cell", "code", fmt.Sprintf("#@title Wait\nimport os, time\nprint('waiting', flush=True)\nwhile not os.path.exists(%q): time.sleep(.01)", signal))
	d.call("add_code_cell", "code", "'end'")
	var a harness.Answer
	must(t, harness.Poll(within.Context(t), func() (bool, error) {
		a = d.call("run_notebook", "retries", 1, "cell_timeout_seconds", 60)
		return strings.Contains(fmt.Sprint(a.Fields["current"]), "index:1"), nil
	}))
	want(t, a, map[string]any{"success": true, "status": "running", "can_continue": true})
	if next := a.String("next_command"); next != fmt.Sprintf(`run_notebook(cell_timeout_seconds=60, retries=1, notebook_path=%q)`, d.path) {
		t.Errorf("next_command %s", next)
	}
	must(t, os.WriteFile(signal, nil, 0o600))
	a = d.done("retries", 1, "cell_timeout_seconds", 60)
	want(t, a, map[string]any{"success": true, "status": "succeeded"})
	var all []string
	for len(messages) > 0 {
		all = append(all, <-messages)
	}
	if !slices.ContainsFunc(all, func(m string) bool { return strings.Contains(m, "1/3 cells, Wait") }) {
		t.Errorf("progress %q", all)
	}
}

// pictureOf returns a PNG of that many bytes or more, in base64.
func pictureOf(t *testing.T, bytesOf int) string {
	t.Helper()
	edge := 1
	for edge*edge < bytesOf {
		edge++
	}
	img := image.NewGray(image.Rect(0, 0, edge, edge))
	_, err := rand.Read(img.Pix)
	must(t, err)
	var b bytes.Buffer
	must(t, png.Encode(&b, img))
	return base64.StdEncoding.EncodeToString(b.Bytes())
}
