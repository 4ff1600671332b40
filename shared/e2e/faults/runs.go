package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

// submission is a run that an agent has submitted once.
type submission struct {
	id     string // in the first line of its code, and in the ledger
	code   string
	output string // what it prints if nothing disturbs it

	executionID string          // "" until an answer names it
	reported    contract.Status // that an answer gave; "" if none did
}

// submission returns a run whose code leaves a mark and then does the rest.
func (s *scene) submission(id, rest, output string) *submission {
	x := &submission{id: id, output: output}
	x.code = fmt.Sprintf("# %s\nwith open(%q, 'a') as ledger: ledger.write('run %s\\n')\n%s", id, s.world.ledgerPath(), id, rest)
	s.model.submitted(x)
	return x
}

// take keeps what an answer says of the run.
func (x *submission) take(a harness.Answer) {
	if id := a.String("execution_id"); id != "" {
		x.executionID = id
	}
	x.reported = contract.Status(a.String("status"))
}

// quick is some quick runs, one after another.
type quick struct {
	name string
	runs int
}

func newQuick(r *rand.Rand, name string) operation { return &quick{name, 1 + r.IntN(8)} }

func (q *quick) String() string { return fmt.Sprintf("%d quick runs", q.runs) }

func (q *quick) do(ctx context.Context, s *scene) error {
	for n := range q.runs {
		id := fmt.Sprintf("%sr%d", q.name, n)
		line := "out " + id + "\n"
		x := s.submission(id, fmt.Sprintf("print('out %s')", id), line)
		a, err := s.call(ctx, "run_code_quick", map[string]any{"code": x.code})
		if errors.Is(err, errNoAnswer) {
			continue
		}
		if err != nil {
			return err
		}
		x.take(a)
		if a.String("status") == string(contract.StatusSucceeded) && a.String("stdout") != line {
			return fmt.Errorf("run %s printed %q, the answer has %q", id, line, a.String("stdout"))
		}
	}
	return nil
}

// long is a run that prints numbered lines, and is followed to its end.
type long struct {
	name    string
	lines   int
	pauseMS int
}

func newLong(r *rand.Rand, name string) operation {
	return &long{name, 10 + r.IntN(60), 5 + r.IntN(40)}
}

func (l *long) String() string { return fmt.Sprintf("a run of %d lines", l.lines) }

func (l *long) do(ctx context.Context, s *scene) error {
	var output strings.Builder
	for n := range l.lines {
		fmt.Fprintf(&output, "%s line %d\n", l.name, n)
	}
	x := s.submission(l.name, fmt.Sprintf("import time\nfor n in range(%d):\n  print('%s line', n, flush=True)\n  time.sleep(%g)",
		l.lines, l.name, float64(l.pauseMS)/1000), output.String())
	a, err := s.call(ctx, "run_code_long", map[string]any{"code": x.code})
	if err != nil && !errors.Is(err, errNoAnswer) {
		return err
	}
	if err == nil {
		x.take(a)
	}
	if x.executionID == "" {
		if x.executionID, err = s.find(ctx, x.id); err != nil || x.executionID == "" {
			return err
		}
		a = harness.Answer{}
	}
	return s.follow(ctx, x, a)
}

// find looks for a run whose submission has no answer, as an agent does. It returns "" if the
// VM does not list it.
func (s *scene) find(ctx context.Context, id string) (string, error) {
	a, err := s.ask(ctx, "list_executions", map[string]any{"limit": 100})
	if err != nil {
		return "", err
	}
	list, _ := a.Fields["executions"].([]any)
	for _, entry := range list {
		fields, _ := entry.(map[string]any)
		if fields["code_preview"] == "# "+id {
			found, _ := fields["execution_id"].(string)
			return found, nil
		}
	}
	return "", nil
}

// follow reads the rest of a run page by page until its end. begun is the answer that had the
// beginning.
func (s *scene) follow(ctx context.Context, x *submission, begun harness.Answer) error {
	text, offset := begun.String("stdout"), begun.Int("next_offset")
	for {
		a, err := s.ask(ctx, "get_execution", map[string]any{"execution_id": x.executionID, "offset": offset, "wait_seconds": 3}, finalErrors...)
		if err != nil {
			return err
		}
		if a.Error() == string(contract.CodeNotFound) {
			return nil // excused: the VM is gone
		}
		x.take(a)
		text += a.String("stdout")
		next := a.Int("next_offset")
		if x.reported.Finished() && (next == offset || a.Fields["truncated"] != true) {
			break
		}
		offset = next
	}
	if !strings.HasPrefix(x.output, text) || x.reported == contract.StatusSucceeded && text != x.output {
		return fmt.Errorf("run %s (%s) is read as %q, it prints %q", x.id, x.reported, text, x.output)
	}
	return nil
}

// finalErrors are the codes with which get_execution says how a run has ended.
var finalErrors = []string{
	string(contract.StatusKernelDied), string(contract.StatusLost), string(contract.StatusCancelled),
	string(contract.StatusInterrupted), string(contract.StatusFailed), string(contract.CodeNotFound),
}
