package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"colabrelay/shared/e2e/harness"
)

// chunkedRun runs a loop in batches, until it is done.
func chunkedRun(ctx context.Context, w *worker) error {
	id, code := w.mark()
	list := "squares_" + strings.ReplaceAll(id, ".", "_")
	a, err := w.untilDone(ctx, "run_chunked_operation", map[string]any{
		"setup_code": code + list + " = []", "loop_code": list + ".append(i * i)",
		"n_iterations": 6, "batch_size": 3, "checkpoint_name": list,
	})
	if err != nil {
		return err
	}
	w.world.runs.expect(id, once)
	return errors.Join(differs(a, "success", true), differs(a, "completed", 6))
}

// untilDone calls a tool again while it can continue. A refusal ends it, although what was submitted
// before goes on: no later operation may use the same name.
func (w *worker) untilDone(ctx context.Context, tool string, args map[string]any) (harness.Answer, error) {
	a, err := w.ask(ctx, tool, args)
	for err == nil && a.Fields["can_continue"] == true && a.Fields["success"] == true {
		a, err = w.ask(ctx, tool, args)
	}
	return a, err
}

// runNotebook writes a notebook of three cells, runs it and reads their outputs in the file.
func runNotebook(ctx context.Context, w *worker) error {
	path := filepath.Join(w.relay.dir, fmt.Sprintf("%s.%d.ipynb", w.name, w.serial))
	var ids []string
	var cells []map[string]any
	for n := range 3 {
		id, code := w.mark()
		ids = append(ids, id)
		cells = append(cells, map[string]any{
			"cell_type": "code", "id": fmt.Sprint("cell", n), "metadata": map[string]any{}, "outputs": []any{}, "execution_count": nil,
			"source": code + fmt.Sprintf("print(%q)", "notebook "+id),
		})
	}
	file, err := json.Marshal(map[string]any{"cells": cells, "metadata": map[string]any{}, "nbformat": 4, "nbformat_minor": 5})
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		return err
	}
	a, err := w.untilDone(ctx, "run_notebook", map[string]any{"notebook_path": path})
	if err != nil {
		return err
	}
	if err := differs(a, "success", true); err != nil {
		return err
	}
	if file, err = os.ReadFile(path); err != nil {
		return err
	}
	for _, id := range ids {
		w.world.runs.expect(id, once)
		if !bytes.Contains(file, []byte(`"notebook `+id+`\n"`)) {
			return fmt.Errorf("the output of %s is not in the notebook: %s", id, a.Text)
		}
	}
	return nil
}

// file uploads up to 300 KB and downloads them again.
func file(ctx context.Context, w *worker) error {
	sent := w.noise(300_000)
	return w.thereAndBack(ctx, "file.bin", func(path string) error { return os.WriteFile(path, sent, 0o600) }, func(path string) error {
		return sameContent(path, sent)
	})
}

// folder uploads ten small files and downloads them again.
func folder(ctx context.Context, w *worker) error {
	const files = 10
	sent := w.noise(2000)
	name := func(dir string, n int) string { return filepath.Join(dir, fmt.Sprint("file", n)) }
	return w.thereAndBack(ctx, "folder", func(dir string) error {
		err := os.MkdirAll(dir, 0o700)
		for n := range files {
			err = errors.Join(err, os.WriteFile(name(dir, n), append(sent, byte(n)), 0o600))
		}
		return err
	}, func(dir string) (err error) {
		for n := range files {
			err = errors.Join(err, sameContent(name(dir, n), append(sent, byte(n))))
		}
		return err
	})
}

func (w *worker) thereAndBack(ctx context.Context, name string, write, check func(path string) error) error {
	local := filepath.Join(w.relay.dir, w.name+"_"+name)
	remote, back := "files/"+filepath.Base(local), "back_"+filepath.Base(local)
	if err := write(local); err != nil {
		return err
	}
	if _, err := w.transfer(ctx, "upload_to_colab", map[string]any{"local_path": local, "remote_path": remote, "overwrite": true}); err != nil {
		return err
	}
	a, err := w.transfer(ctx, "download_from_colab", map[string]any{"remote_path": remote, "local_filename": back, "overwrite": true})
	if err != nil {
		return err
	}
	return check(a.String("local_path"))
}

// noise returns up to n random bytes.
func (w *worker) noise(n int) []byte {
	p := make([]byte, 1+w.random.IntN(n))
	for i := range p {
		p[i] = byte(w.random.Uint32())
	}
	return p
}

func sameContent(path string, want []byte) error {
	got, err := os.ReadFile(path)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%q came back with other content", path)
	}
	return err
}

func kernelState(ctx context.Context, w *worker) error {
	a, err := w.untilDone(ctx, "save_kernel_state", map[string]any{"name": w.name, "keep_versions": 1})
	return errors.Join(err, differs(a, "success", true))
}

// lists makes the calls that only look.
func lists(ctx context.Context, w *worker) error {
	for _, tool := range []string{"check_colab_connection", "probe_colab_environment", "list_colab_files", "list_colab_variables", "list_executions"} {
		if _, err := w.look(ctx, tool, nil); err != nil {
			return err
		}
	}
	if w.last.id == "" {
		return nil
	}
	a, err := w.ask(ctx, "get_execution", map[string]any{"execution_id": w.last.id})
	if err == nil && !strings.HasPrefix(w.last.stdout, a.String("stdout")) {
		err = differs(a, "stdout", w.last.stdout)
	}
	return err
}
