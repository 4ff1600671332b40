package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

// worker makes one call of a relay after the other.
type worker struct {
	world  *world
	relay  *relay
	name   string // such as r007_0: unique, and a part of the names of its files and variables
	random *rand.Rand
	serial int // of its runs
	count  int // the value of its variable
	last   ran // its last run whose output fitted into an answer

	done int // operations that were not refused
}

// work does the operations of one round after the other, in a random order. It stops with an
// error, or when enough reports true before an operation.
func (w *worker) work(ctx context.Context, enough func() bool) error {
	for {
		round := deck()
		w.random.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		for _, o := range round {
			if enough() {
				return nil
			}
			if err := w.do(ctx, o); err != nil {
				return fmt.Errorf("relay %s, %s: %w", w.name, o.name, err)
			}
		}
	}
}

// do does one operation and counts it.
func (w *worker) do(ctx context.Context, o operation) error {
	began := time.Now()
	err := harness.Try(func() { o.do(ctx, w) })
	if _, refused := errors.AsType[*refusal](err); refused {
		return nil
	}
	w.done++
	w.world.tally.did(o, time.Since(began))
	return err
}

// ran is a run that has ended.
type ran struct{ id, stdout string }

// refusal is an answer that an overloaded executor may give: queue_full or rate_limited.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// ask calls a tool and returns its answer. A refusal is an error of type *refusal.
func (w *worker) ask(ctx context.Context, tool string, args map[string]any) (harness.Answer, error) {
	end := w.world.tally.begin()
	a, err := w.relay.Call(ctx, tool, args)
	code := contract.Code(a.Error())
	end(code)
	if err == nil && (code == contract.CodeQueueFull || code == contract.CodeRateLimited) {
		err = &refusal{tool + ": " + a.Text}
	}
	return a, err
}

// succeed calls a tool, which must succeed.
func (w *worker) succeed(ctx context.Context, tool string, args map[string]any) (harness.Answer, error) {
	a, err := w.ask(ctx, tool, args)
	if err == nil && a.Fields["success"] != true {
		err = fmt.Errorf("%s: %s", tool, a.Text)
	}
	return a, err
}

// transfer calls a tool that transfers a file. After a refusal it calls again, as the answer
// says: an unfinished transfer would leave a part of the file on the VM.
func (w *worker) transfer(ctx context.Context, tool string, args map[string]any) (a harness.Answer, err error) {
	for range 50 {
		a, err = w.succeed(ctx, tool, args)
		if _, refused := errors.AsType[*refusal](err); !refused {
			break
		}
	}
	return a, err
}

var executionID = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// look calls a tool that needs a moment of the idle kernel. Another relay's run may occupy the
// kernel for seconds; then it waits for the end of that run, or until its owner has answered it, and
// calls again, as the answer says.
func (w *worker) look(ctx context.Context, tool string, args map[string]any) (a harness.Answer, err error) {
	for ctx.Err() == nil {
		if a, err = w.ask(ctx, tool, args); err != nil || a.Error() != string(contract.CodeKernelBusy) {
			break
		}
		if run := executionID.FindString(a.Text); run != "" {
			_, err = w.ask(ctx, "get_execution", map[string]any{"execution_id": run, "wait_seconds": 40})
		}
		select { // that answers at once while the run waits for input
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	if err == nil && a.Fields["success"] != true {
		err = fmt.Errorf("%s: %s", tool, a.Text)
	}
	return a, err
}

// mark returns an id for a run, and code that notes it on the VM.
func (w *worker) mark() (id, code string) {
	w.serial++
	id = fmt.Sprintf("%s.%d", w.name, w.serial)
	w.world.runs.expect(id, atMostOnce)
	return id, fmt.Sprintf("with open('ran.txt', 'a') as f: f.write(%q)\n", id+"\n")
}

// execute calls a tool that runs code which is marked with id, and reads it to its end.
func (w *worker) execute(ctx context.Context, id, tool string, args map[string]any) (harness.Answer, error) {
	a, err := w.ask(ctx, tool, args)
	if _, refused := err.(*refusal); refused && a.String("execution_id") == "" {
		w.world.runs.expect(id, never)
	}
	if err != nil {
		return a, err
	}
	return w.finish(ctx, id, a)
}

// finish reads the run of an answer until it has ended or waits for input. The result has the
// whole stdout.
func (w *worker) finish(ctx context.Context, id string, a harness.Answer) (harness.Answer, error) {
	execution, stdout := a.String("execution_id"), a.String("stdout")
	for unfinished(a) {
		next, err := w.ask(ctx, "get_execution", map[string]any{"execution_id": execution, "offset": a.Int("next_offset"), "wait_seconds": 40})
		if err != nil {
			return a, err
		}
		a, stdout = next, stdout+next.String("stdout")
	}
	a.Fields["stdout"] = stdout
	if w.last = (ran{execution, stdout}); a.Fields["truncated"] == true {
		w.last = ran{}
	}
	switch a.String("status") {
	case "succeeded", "failed":
		w.world.runs.expect(id, once)
	}
	return a, nil
}

func unfinished(a harness.Answer) bool {
	return a.String("status") == "running" || a.String("status") == "queued"
}

// wantField fails if the answer's field has another value.
func wantField(a harness.Answer, field string, want any) {
	got, wanted := fmt.Sprint(a.Fields[field]), fmt.Sprint(want)
	harness.FailIf(got != wanted, "%s is %.300q, want %.300q; the answer: %.600s", field, got, wanted, a.Text)
}

// chunkedRun runs a loop in batches, until it is done.
func chunkedRun(ctx context.Context, w *worker) {
	id, code := w.mark()
	list := "squares_" + strings.ReplaceAll(id, ".", "_")
	a := harness.Must(w.untilDone(ctx, "run_chunked_operation", map[string]any{
		"setup_code": code + list + " = []", "loop_code": list + ".append(i * i)",
		"n_iterations": 6, "batch_size": 3, "checkpoint_name": list,
	}))
	w.world.runs.expect(id, once)
	wantField(a, "success", true)
	wantField(a, "completed", 6)
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
func runNotebook(ctx context.Context, w *worker) {
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
	file := harness.Must(json.Marshal(map[string]any{"cells": cells, "metadata": map[string]any{}, "nbformat": 4, "nbformat_minor": 5}))
	harness.Check(os.WriteFile(path, file, 0o600))
	a := harness.Must(w.untilDone(ctx, "run_notebook", map[string]any{"notebook_path": path}))
	wantField(a, "success", true)
	file = harness.Must(os.ReadFile(path))
	for _, id := range ids {
		w.world.runs.expect(id, once)
		harness.FailIf(!bytes.Contains(file, []byte(`"notebook `+id+`\n"`)), "the output of %s is not in the notebook: %s", id, a.Text)
	}
}

// file uploads up to 300 KB and downloads them again.
func file(ctx context.Context, w *worker) {
	sent := w.noise(300_000)
	w.thereAndBack(ctx, "file.bin", func(path string) { harness.Check(os.WriteFile(path, sent, 0o600)) }, func(path string) { sameContent(path, sent) })
}

// folder uploads ten small files and downloads them again.
func folder(ctx context.Context, w *worker) {
	const files = 10
	sent := w.noise(2000)
	name := func(dir string, n int) string { return filepath.Join(dir, fmt.Sprint("file", n)) }
	w.thereAndBack(ctx, "folder", func(dir string) {
		harness.Check(os.MkdirAll(dir, 0o700))
		for n := range files {
			harness.Check(os.WriteFile(name(dir, n), append(sent, byte(n)), 0o600))
		}
	}, func(dir string) {
		for n := range files {
			sameContent(name(dir, n), append(sent, byte(n)))
		}
	})
}

func (w *worker) thereAndBack(ctx context.Context, name string, write, check func(path string)) {
	local := filepath.Join(w.relay.dir, w.name+"_"+name)
	remote, back := "files/"+filepath.Base(local), "back_"+filepath.Base(local)
	write(local)
	harness.Must(w.transfer(ctx, "upload_to_colab", map[string]any{"local_path": local, "remote_path": remote, "overwrite": true}))
	a := harness.Must(w.transfer(ctx, "download_from_colab", map[string]any{"remote_path": remote, "local_filename": back, "overwrite": true}))
	check(a.String("local_path"))
}

// noise returns up to n random bytes.
func (w *worker) noise(n int) []byte {
	p := make([]byte, 1+w.random.IntN(n))
	for i := range p {
		p[i] = byte(w.random.Uint32())
	}
	return p
}

func sameContent(path string, want []byte) {
	got := harness.Must(os.ReadFile(path))
	harness.FailIf(!bytes.Equal(got, want), "%q came back with other content", path)
}

func kernelState(ctx context.Context, w *worker) {
	a := harness.Must(w.untilDone(ctx, "save_kernel_state", map[string]any{"name": w.name, "keep_versions": 1}))
	wantField(a, "success", true)
}

// lists makes the calls that only look.
func lists(ctx context.Context, w *worker) {
	for _, tool := range []string{"check_colab_connection", "probe_colab_environment", "list_colab_files", "list_colab_variables", "list_executions"} {
		harness.Must(w.look(ctx, tool, nil))
	}
	if w.last.id == "" {
		return
	}
	a := harness.Must(w.ask(ctx, "get_execution", map[string]any{"execution_id": w.last.id}))
	if !strings.HasPrefix(w.last.stdout, a.String("stdout")) {
		wantField(a, "stdout", w.last.stdout)
	}
}

// operation is one thing that an agent does: a call or some that belong together.
type operation struct {
	name  string
	times int // in a round
	do    func(context.Context, *worker)
}

// operations are what a worker does in each round, in a random order. None affects other relays
// except by the time that it takes.
var operations = []operation{
	{"quick run", 6, quickRun},
	{"variable", 2, countUp},
	{"exception", 1, exception},
	{"long run", 1, longRun},
	{"long output", 1, longOutput},
	{"picture", 1, picture},
	{"input", 1, input},
	{"interrupt", 1, interrupt},
	{"chunked run", 1, chunkedRun},
	{"notebook", 1, runNotebook},
	{"file", 1, file},
	{"folder", 1, folder},
	{"kernel state", 1, kernelState},
	{"lists", 1, lists},
}

// deck is the operations of one round.
func deck() (all []operation) {
	for _, o := range operations {
		all = append(all, slices.Repeat([]operation{o}, o.times)...)
	}
	return all
}

func quickRun(ctx context.Context, w *worker) {
	id, code := w.mark()
	a := harness.Must(w.execute(ctx, id, "run_code_quick", map[string]any{"code": code + fmt.Sprintf("print(%q)", id)}))
	wantField(a, "success", true)
	wantField(a, "stdout", id+"\n")
}

// countUp increments a variable of its own in the kernel, and inspects it.
func countUp(ctx context.Context, w *worker) {
	id, code := w.mark()
	code += fmt.Sprintf("count_%[1]s = globals().get('count_%[1]s', 0) + 1\ncount_%[1]s", w.name)
	a, err := w.execute(ctx, id, "run_code_quick", map[string]any{"code": code})
	if a.String("execution_id") != "" { // it runs, even if a later read is refused
		w.count++
	}
	harness.Check(err)
	wantField(a, "result", w.count)
	a = harness.Must(w.look(ctx, "inspect_variable", map[string]any{"name": "count_" + w.name}))
	wantField(a, "preview", w.count)
}

func exception(ctx context.Context, w *worker) {
	id, code := w.mark()
	a := harness.Must(w.execute(ctx, id, "run_code_quick", map[string]any{"code": code + fmt.Sprintf("raise ValueError(%q)", id)}))
	raised, _ := a.Fields["error"].(map[string]any)
	harness.FailIf(raised["ename"] != "ValueError" || raised["evalue"] != id, "the error is %v", raised)
	wantField(a, "status", "failed")
}

// longRun reads numbered lines, and the answer that the relay keeps.
func longRun(ctx context.Context, w *worker) {
	id, code := w.mark()
	var want strings.Builder
	for i := range 20 {
		fmt.Fprintln(&want, id, i)
	}
	kept := w.name + "_long"
	a := harness.Must(w.execute(ctx, id, "run_code_long", map[string]any{
		"code": code + fmt.Sprintf("import time\nfor i in range(20):\n    print(%q, i, flush=True)\n    time.sleep(.002)", id), "checkpoint_name": kept}))
	wantField(a, "status", "succeeded")
	wantField(a, "stdout", want.String())
	wantField(harness.Must(w.succeed(ctx, "get_checkpoint", map[string]any{"operation": kept})), "exists", true)
}

// longOutput prints more than one answer holds and reads all of it, page by page.
func longOutput(ctx context.Context, w *worker) {
	id, code := w.mark()
	line := id + strings.Repeat("x", 90) + "\n"
	a := harness.Must(w.execute(ctx, id, "run_code_quick", map[string]any{"code": code + fmt.Sprintf("for _ in range(200): print(%q, end='')", line)}))
	wantField(a, "status", "succeeded")
	wantField(a, "truncated", true)
	execution := a.String("execution_id")
	var all strings.Builder
	for more, offset := true, int64(0); more; more = a.Fields["truncated"] == true {
		a = harness.Must(w.ask(ctx, "get_execution", map[string]any{"execution_id": execution, "offset": offset}))
		offset = a.Int("next_offset")
		all.WriteString(a.String("stdout"))
	}
	harness.FailIf(all.String() != strings.Repeat(line, 200), "the pages have %d characters, not the %d that were printed", all.Len(), 200*len(line))
}

const pictureCode = `import struct, zlib
from IPython.display import Image, display
def chunk(kind, data): return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
rows = b''.join(b'\0' + bytes((x ^ y) & 255 for x in range(100)) for y in range(100))
display(Image(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 100, 100, 8, 0, 0, 0, 0)) + chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b'')))`

func picture(ctx context.Context, w *worker) {
	id, code := w.mark()
	a := harness.Must(w.execute(ctx, id, "run_code_quick", map[string]any{"code": code + pictureCode}))
	harness.FailIf(len(a.Images) != 1, "the answer has %d pictures: %s", len(a.Images), a.Text)
}
