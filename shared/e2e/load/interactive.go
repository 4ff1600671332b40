package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"colabrelay/shared/e2e/harness"
)

// input answers a run that calls input().
func input(ctx context.Context, w *worker) error {
	id, code := w.mark()
	a, err := w.execute(ctx, id, "run_code_quick", map[string]any{"code": code + "print('hello', input('who? '))"})
	if err != nil {
		return err
	}
	if err := differs(a, "status", "waiting_for_input"); err != nil {
		return err
	}
	execution, asked := a.String("execution_id"), a.String("stdout")
	if _, err := w.succeed(ctx, "provide_input", map[string]any{"execution_id": execution, "text": id}); err != nil {
		return err
	}
	rest, err := w.ask(ctx, "get_execution", map[string]any{"execution_id": execution, "offset": a.Int("next_offset"), "wait_seconds": 40})
	if err != nil {
		return err
	}
	if rest, err = w.finish(ctx, id, rest); err != nil {
		return err
	}
	if stdout := asked + rest.String("stdout"); !strings.HasSuffix(stdout, "hello "+id+"\n") {
		return fmt.Errorf("stdout is %q", stdout)
	}
	return differs(rest, "status", "succeeded")
}

// interrupt finds its own run in the list and interrupts it while it waits or runs. The run ends
// by itself after 3 s.
func interrupt(ctx context.Context, w *worker) error {
	id, code := w.mark()
	type ending struct {
		harness.Answer
		err error
	}
	ended := make(chan ending, 1)
	go func() {
		a, err := w.execute(ctx, id, "run_code_long", map[string]any{"code": "# " + id + "\n" + code + "import time\nfor _ in range(300): time.sleep(.01)"})
		ended <- ending{a, err}
	}()
	interrupted, err := w.interruptRun(ctx, id)
	end := <-ended
	switch status := end.String("status"); {
	case err != nil, end.err != nil:
		return errors.Join(err, end.err)
	case status == "interrupted", status == "cancelled", status == "succeeded" && !interrupted:
		return nil
	}
	return fmt.Errorf("a run that was interrupted (%t): %s", interrupted, end.Text)
}

// interruptRun reports whether it found the run before it had ended, and interrupted it.
func (w *worker) interruptRun(ctx context.Context, id string) (bool, error) {
	for range 20 {
		a, err := w.succeed(ctx, "list_executions", map[string]any{"limit": 200})
		if err != nil {
			return false, err
		}
		list, _ := a.Fields["executions"].([]any)
		for _, entry := range list {
			e, _ := entry.(map[string]any)
			if preview, _ := e["code_preview"].(string); preview != "# "+id {
				continue
			}
			a, err := w.ask(ctx, "interrupt_execution", map[string]any{"execution_id": e["execution_id"]})
			status := a.String("status")
			return status == "interrupted" || status == "cancelled", err // it may end by itself meanwhile
		}
	}
	return false, nil
}
