package main

import (
	"context"
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
	anything    bool            // its output is not known before
	lossy       bool            // its output may be missing where a gap says so
	expected    accepted        // the statuses, besides succeeded, in which it may end without a fault
}

// submission returns a run whose code leaves a mark and then does the rest.
func (s *scene) submission(id, rest, output string) *submission {
	x := &submission{id: id, output: output, lossy: s.excuses.all(vmDiskFull | executorEnds)}
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

// over reports whether an answer said how the run ended.
func (x *submission) over() bool { return x.reported != "" && x.reported.Finished() }

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
		x := s.submission(id, fmt.Sprintf("print('out %s')", id), "out "+id+"\n")
		a, err := s.call(ctx, "run_code_quick", map[string]any{"code": x.code})
		if isNoAnswer(err) {
			continue
		}
		if err != nil {
			return err
		}
		x.take(a)
		if x.reported == contract.StatusSucceeded {
			if err := x.checkText("the answer of run "+id, x.reported, a.String("stdout")); err != nil {
				return err
			}
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

// submission returns the run.
func (l *long) submission(s *scene) *submission {
	var output strings.Builder
	for n := range l.lines {
		fmt.Fprintf(&output, "%s line %d\n", l.name, n)
	}
	return s.submission(l.name, fmt.Sprintf("import time\nfor n in range(%d):\n  print('%s line', n, flush=True)\n  time.sleep(%g)",
		l.lines, l.name, float64(l.pauseMS)/1000), output.String())
}

func (l *long) do(ctx context.Context, s *scene) error {
	x := l.submission(s)
	a, begun, err := s.begin(ctx, x)
	if err != nil || !begun {
		return err
	}
	return s.follow(ctx, x, a)
}

// newPaged returns a run whose output fills several pages.
func newPaged(r *rand.Rand, name string) operation { return &long{name, 2000 + r.IntN(4000), 0} }
