package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// operation is one thing that an agent does: a call or some that belong together.
type operation struct {
	name  string
	times int // in a round
	do    func(context.Context, *worker) error
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

func quickRun(ctx context.Context, w *worker) error {
	id, code := w.mark()
	a, err := w.execute(ctx, id, "run_code_quick", map[string]any{"code": code + fmt.Sprintf("print(%q)", id)})
	if err != nil {
		return err
	}
	return errors.Join(differs(a, "success", true), differs(a, "stdout", id+"\n"))
}

// countUp increments a variable of its own in the kernel, and inspects it.
func countUp(ctx context.Context, w *worker) error {
	id, code := w.mark()
	code += fmt.Sprintf("count_%[1]s = globals().get('count_%[1]s', 0) + 1\ncount_%[1]s", w.name)
	a, err := w.execute(ctx, id, "run_code_quick", map[string]any{"code": code})
	if a.String("execution_id") != "" { // it runs, even if a later read is refused
		w.count++
	}
	if err != nil {
		return err
	}
	if err := differs(a, "result", w.count); err != nil {
		return err
	}
	a, err = w.look(ctx, "inspect_variable", map[string]any{"name": "count_" + w.name})
	if err != nil {
		return err
	}
	return differs(a, "preview", w.count)
}

func exception(ctx context.Context, w *worker) error {
	id, code := w.mark()
	a, err := w.execute(ctx, id, "run_code_quick", map[string]any{"code": code + fmt.Sprintf("raise ValueError(%q)", id)})
	if err != nil {
		return err
	}
	raised, _ := a.Fields["error"].(map[string]any)
	if raised["ename"] != "ValueError" || raised["evalue"] != id {
		err = fmt.Errorf("the error is %v", raised)
	}
	return errors.Join(differs(a, "status", "failed"), err)
}

// longRun reads numbered lines, and the answer that the relay keeps.
func longRun(ctx context.Context, w *worker) error {
	id, code := w.mark()
	var want strings.Builder
	for i := range 20 {
		fmt.Fprintln(&want, id, i)
	}
	kept := w.name + "_long"
	a, err := w.execute(ctx, id, "run_code_long", map[string]any{
		"code": code + fmt.Sprintf("import time\nfor i in range(20):\n    print(%q, i, flush=True)\n    time.sleep(.002)", id), "checkpoint_name": kept})
	if err != nil {
		return err
	}
	if err := errors.Join(differs(a, "status", "succeeded"), differs(a, "stdout", want.String())); err != nil {
		return err
	}
	a, err = w.succeed(ctx, "get_checkpoint", map[string]any{"operation": kept})
	return errors.Join(err, differs(a, "exists", true))
}

// longOutput prints more than one answer holds and reads all of it, page by page.
func longOutput(ctx context.Context, w *worker) error {
	id, code := w.mark()
	line := id + strings.Repeat("x", 90) + "\n"
	a, err := w.execute(ctx, id, "run_code_quick", map[string]any{"code": code + fmt.Sprintf("for _ in range(200): print(%q, end='')", line)})
	if err != nil {
		return err
	}
	if err := errors.Join(differs(a, "status", "succeeded"), differs(a, "truncated", true)); err != nil {
		return err
	}
	execution := a.String("execution_id")
	var all strings.Builder
	for more, offset := true, int64(0); more; more = a.Fields["truncated"] == true {
		if a, err = w.ask(ctx, "get_execution", map[string]any{"execution_id": execution, "offset": offset}); err != nil {
			return err
		}
		offset = a.Int("next_offset")
		all.WriteString(a.String("stdout"))
	}
	if want := strings.Repeat(line, 200); all.String() != want {
		return fmt.Errorf("the pages have %d characters, not the %d that were printed", all.Len(), len(want))
	}
	return nil
}

const pictureCode = `import struct, zlib
from IPython.display import Image, display
def chunk(kind, data): return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
rows = b''.join(b'\0' + bytes((x ^ y) & 255 for x in range(100)) for y in range(100))
display(Image(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 100, 100, 8, 0, 0, 0, 0)) + chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b'')))`

func picture(ctx context.Context, w *worker) error {
	id, code := w.mark()
	a, err := w.execute(ctx, id, "run_code_quick", map[string]any{"code": code + pictureCode})
	if err == nil && len(a.Images) != 1 {
		err = fmt.Errorf("the answer has %d pictures: %s", len(a.Images), a.Text)
	}
	return err
}
