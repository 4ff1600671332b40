package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// notebookRun runs a notebook whose cells build on each other.
type notebookRun struct {
	name    string
	cells   int
	pauseMS int
}

func newNotebook(r *rand.Rand, name string) operation {
	return &notebookRun{name, 3 + r.IntN(10), r.IntN(80)}
}

func (n *notebookRun) String() string { return fmt.Sprintf("a notebook of %d cells", n.cells) }

// cell is the source of a cell: it fails in a kernel in which the one before did not run.
func (n *notebookRun) cell(s *scene, k int) string {
	value := "0"
	if k > 0 {
		value = fmt.Sprintf("%s_%d + 1", n.name, k-1)
	}
	return fmt.Sprintf("%s%s_%d = %s\nwith open(%q, 'a') as ledger: ledger.write('cell %s {} %d\\n'.format(LIFE))\ntime.sleep(%g)\nprint('cell', %d, LIFE, %s_%d)",
		lifeCode, n.name, k, value, s.world.ledgerPath(), n.name, k, float64(n.pauseMS)/1000, k, n.name, k)
}

func (n *notebookRun) write(ctx context.Context, s *scene, path string) error {
	var cells []map[string]any
	for k := range n.cells {
		cells = append(cells, map[string]any{
			"cell_type": "code", "id": fmt.Sprintf("cell%d", k), "metadata": map[string]any{},
			"source": n.cell(s, k), "outputs": []any{}, "execution_count": nil,
		})
	}
	text, err := json.Marshal(map[string]any{"cells": cells, "metadata": map[string]any{}, "nbformat": 4, "nbformat_minor": 5})
	if err != nil {
		return err
	}
	return s.write(ctx, path, text)
}

func (n *notebookRun) do(ctx context.Context, s *scene) error {
	path := filepath.Join(s.laptop.dir, n.name+".ipynb")
	if err := n.write(ctx, s, path); err != nil {
		return err
	}
	for {
		a, err := s.ask(ctx, "run_notebook", map[string]any{"notebook_path": path, "on_new_kernel": "rerun"}, nil)
		if err != nil {
			return err
		}
		if a.Error() == "" && a.Fields["can_continue"] != true {
			if a.String("status") != "succeeded" {
				return fmt.Errorf("the notebook is %s: %s", a.String("status"), a.Text)
			}
			s.tally.add("cells", n.cells)
			return n.check(s, path)
		}
	}
}

// check: the outputs are those of the cells, which ran once in one kernel.
func (n *notebookRun) check(s *scene, path string) error {
	var file struct {
		Cells []struct {
			Outputs []struct {
				Text any `json:"text"`
			} `json:"outputs"`
		} `json:"cells"`
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if err != nil {
		return err
	}
	ledger, err := readLedger(s.world.ledgerPath())
	if err != nil {
		return err
	}
	life := ""
	for k, c := range file.Cells {
		printed := ""
		for _, o := range c.Outputs {
			printed += joined(o.Text)
		}
		if s.excuses.all(vmDiskFull|executorEnds) && strings.Contains(printed, "[output is missing here: the VM lost it") {
			continue // and the notebook says so
		}
		fields := strings.Fields(printed)
		if len(fields) != 4 || fields[1] != fmt.Sprint(k) || fields[3] != fmt.Sprint(k) {
			return fmt.Errorf("the outputs of cell %d are %q", k, printed)
		}
		if life == "" {
			life = fields[2]
		}
		if ran := ledger[fmt.Sprintf("cell %s %s %d", n.name, fields[2], k)]; ran != 1 || fields[2] != life {
			return fmt.Errorf("cell %d shows what ran %d times in the kernel %s, the first cell ran in %s", k, ran, fields[2], life)
		}
	}
	return nil
}

// joined is a multi-line string of nbformat: a string or a list of them.
func joined(text any) string {
	lines, ok := text.([]any)
	if !ok {
		return fmt.Sprint(text)
	}
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprint(&b, line)
	}
	return b.String()
}
