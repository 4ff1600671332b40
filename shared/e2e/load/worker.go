package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
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
	err := o.do(ctx, w)
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
// kernel for seconds; then it waits for the end of that run and calls again, as the answer says.
func (w *worker) look(ctx context.Context, tool string, args map[string]any) (a harness.Answer, err error) {
	for range 50 {
		if a, err = w.ask(ctx, tool, args); err != nil || a.Error() != string(contract.CodeKernelBusy) {
			break
		}
		if run := executionID.FindString(a.Text); run != "" {
			_, err = w.ask(ctx, "get_execution", map[string]any{"execution_id": run, "wait_seconds": 40})
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
	if a.Fields["truncated"] != true {
		w.last = ran{execution, stdout}
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

// differs returns an error if the answer's field has another value.
func differs(a harness.Answer, field string, want any) error {
	if got := a.Fields[field]; fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("%s is %.300q, want %.300q; the answer: %.600s", field, fmt.Sprint(got), fmt.Sprint(want), a.Text)
	}
	return nil
}
