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
	{"long run", 1, longRun},
	{"chunked run", 1, chunkedRun},
	{"notebook", 1, runNotebook},
	{"file", 1, file},
	{"kernel state", 1, kernelState},
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
