package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"colabrelay/executor/jupyter"
	"colabrelay/relay/client"
	"colabrelay/relay/jobs"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

const (
	// notebookCells is how many cells of trivial code the measured notebook has.
	notebookCells = 1000
	// perCell is how much longer than the kernel a cell may take.
	perCell = 15 * time.Millisecond
)

// notebook measures a notebook's cells, each as a part of the whole.
func notebook(ctx context.Context, b *bench) []row {
	p := b.pair(ctx)
	kernel := b.kernelOf(ctx, p.executor)
	tool := b.notebookTool(ctx, p.executor.Ready.LocalURL)
	// Once each: the executor admits 6,000 requests at once and then 100 a second, and each of
	// the two ways makes 1,000 or more.
	s := timing{n: 1}.inTurn(ctx, bareCells(kernel), jobOfCells(p.client), tool)
	bare, steps, run := s[0].each(notebookCells), s[1].each(notebookCells), s[2].each(notebookCells)
	return []row{
		latency("a cell on the bare kernel", bare),
		overBare(latency("a step of a job, read through relay/jobs", steps), steps, bare),
		overBare(latency("a cell of run_notebook, with its outputs saved", run), run, bare),
	}
}

// notebookTool runs a notebook as an agent does. The relay's files are on disk, because it
// syncs its record.
func (b *bench) notebookTool(ctx context.Context, url string) way {
	c := b.relayConfig(url)
	c.Dir = b.disk
	c.Env = append(c.Env, "RELAY_TOOLSETS=core,notebook", "CHECKPOINT_DIR="+filepath.Join(b.disk, "checkpoints"))
	path := filepath.Join(b.disk, "bench.ipynb")
	harness.Check(os.WriteFile(path, cellsWith(notebookCells, onePlusOne, ""), 0o600))
	h := b.startHost(ctx, c)
	return way{name: "run_notebook", do: func(ctx context.Context) {
		for call(ctx, h, "run_notebook", map[string]any{"notebook_path": path}).Fields["can_continue"] == true {
		}
	}}
}

// each divides the samples by n.
func (s samples) each(n time.Duration) (parts samples) {
	for _, d := range s {
		parts = append(parts, d/n)
	}
	return parts
}

// overBare compares a cell with the same one on the bare kernel.
func overBare(r row, s, bare samples) row {
	r = r.comparedTo("bare kernel", s, bare)
	more := s.median() - bare.median()
	r.target = target{"at most " + short(perCell) + " more", more <= perCell}
	r.note = short(more) + " more"
	return r
}

func bareCells(kernel *jupyter.Client) way {
	return way{name: "bare kernel", do: func(ctx context.Context) {
		for range notebookCells {
			executeBare(ctx, kernel, onePlusOne)
		}
	}}
}

// jobOfCells has the executor run the cells as one job, and reads the output of each.
func jobOfCells(c *client.Client) way {
	return way{name: "job", do: func(ctx context.Context) {
		var s contract.JobSubmit
		for n := range notebookCells {
			s.Steps = append(s.Steps, contract.JobStep{StepID: fmt.Sprint(n), Code: onePlusOne})
		}
		harness.Must(c.Kernel(ctx)) // the ticket names the instance that answers
		ticket := jobs.New(c.InstanceID(), s)
		harness.Check(ticket.Submit(ctx, c, func() error { return nil }))
		j := harness.Must(ticket.Follow(ctx, c, jobs.FollowOptions{Until: time.Now().Add(10 * time.Minute)}))
		harness.FailIf(j.State != contract.JobFinished, "the job is %s: %s", j.State, j.Reason)
	}}
}

const (
	bigCells   = 500
	bigPicture = 75 << 10 // bytes; as base64, 500 of them are 50 MB
	bigMemory  = 200      // MiB that the relay may take
)

// bigNotebook measures calls of the tools on a notebook of 50 MB with pictures.
func bigNotebook(ctx context.Context, b *bench) []row {
	c := b.relayConfig("http://127.0.0.1:1") // these tools need no VM
	c.Dir = b.disk
	c.Env = append(c.Env, "RELAY_TOOLSETS=core,notebook", "CHECKPOINT_DIR="+filepath.Join(b.disk, "checkpoints"))
	path := filepath.Join(b.disk, "big.ipynb")
	harness.Check(os.WriteFile(path, picturesOf(bigCells), 0o600))
	h := b.startHost(ctx, c)
	edits := 0
	s := timing{n: 9, warmUps: 1}.inTurn(ctx,
		way{name: "get_cells", do: func(ctx context.Context) {
			call(ctx, h, "get_cells", map[string]any{"notebook_path": path})
		}},
		way{name: "update_cell", do: func(ctx context.Context) {
			edits++
			call(ctx, h, "update_cell", map[string]any{"notebook_path": path, "cellId": "cell-250", "content": fmt.Sprint("x = ", edits)})
		}})
	read, edit := latency("get_cells of a notebook of 50 MB", s[0]), latency("update_cell of it", s[1])
	read.target, edit.target = within(s[0].median(), time.Second), within(s[1].median(), time.Second)
	m := harness.Must(harness.MemoryOf(h.PID()))
	return []row{read, edit, {what: "relay: largest RSS meanwhile", figure: fmt.Sprintf("%.0f MiB", m.Peak), target: atMost(m.Peak, bigMemory, " MiB")}}
}

// picturesOf is a notebook of n cells that each show a picture.
func picturesOf(n int) []byte {
	picture := base64.StdEncoding.EncodeToString(noise(bigPicture))
	output := fmt.Sprintf(`{"data": {"image/png": %q}, "metadata": {}, "output_type": "display_data"}`, picture)
	return cellsWith(n, onePlusOne, output)
}

// cellsWith is a notebook of n cells with the same source and outputs.
func cellsWith(n int, source, outputs string) []byte {
	var text strings.Builder
	text.WriteString("{\n \"cells\": [")
	for i := range n {
		fmt.Fprintf(&text, "%s\n  {\n   \"cell_type\": \"code\",\n   \"execution_count\": null,\n   \"id\": \"cell-%d\",\n   \"metadata\": {},\n   \"outputs\": [%s],\n   \"source\": [%q]\n  }",
			strings.Repeat(",", min(i, 1)), i, outputs, source)
	}
	text.WriteString("\n ],\n \"metadata\": {},\n \"nbformat\": 4,\n \"nbformat_minor\": 5\n}\n")
	return []byte(text.String())
}
