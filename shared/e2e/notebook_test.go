package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"image"
	"image/png"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

// desk is a host that works on one notebook.
type desk struct {
	t *testing.T
	*harness.Host
	path string
}

// call calls a tool about the notebook. Arguments are in pairs.
func (d desk) call(tool string, pairs ...any) harness.Answer {
	d.t.Helper()
	args := map[string]any{"notebook_path": d.path}
	for pair := range slices.Chunk(pairs, 2) {
		args[pair[0].(string)] = pair[1]
	}
	return call(d.t, d.Host, tool, args)
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

// An agent makes a notebook, runs its cells, changes it and runs it as a whole, on both stacks.
func TestAnAgentWorksOnANotebook(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		e := borrowExecutor(t, s)
		dir := t.TempDir()
		h := startHost(t, e.Ready.LocalURL, harness.HostConfig{Dir: dir, Args: []string{"serve", "--toolsets", "notebook"}})
		d := desk{t, h, filepath.Join(dir, "work.ipynb")}

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
