package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

// operation is something that an agent does. do returns when its end is known; an error, of
// harness.Check, is a contradiction to the model.
type operation interface {
	fmt.Stringer
	do(ctx context.Context, s *scene)
}

// operations make one of each kind. name is unique in the run of the suite.
var operations = []func(r *rand.Rand, name string) operation{
	newQuick, newLong, newPaged, newInput, newInterrupted, newCancelled, newChunked, newUpload, newDownload, newFolder,
	newNotebook, newState, newVariable, newCommand,
}

// scene is where an operation happens: a laptop, and the excuses of the step.
type scene struct {
	*suite
	laptop  *laptop
	excuses excuses
}

// callCancelled is the code of an answer to a host that has closed its relay's stdin. A real host
// does not read it.
const callCancelled = "call_cancelled"

// errNoAnswer says that a call has no answer, because its relay ended.
var errNoAnswer = errors.New("the call has no answer")

func isNoAnswer(err error) bool { return errors.Is(err, errNoAnswer) }

// call calls a tool once. Its error is errNoAnswer if the step excuses that.
func (s *scene) call(ctx context.Context, tool string, args map[string]any) (harness.Answer, error) {
	a, err := s.answer(ctx, tool, args)
	if err == nil {
		_, err = s.judge(tool, a, nil)
	}
	return a, err
}

// answer is call for an answer that is not judged.
func (s *scene) answer(ctx context.Context, tool string, args map[string]any) (harness.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if tool == "restore_kernel_state" {
		s.model.restoreBegins()
	}
	a, err := s.laptop.current().Call(ctx, tool, args)
	if (err != nil && ctx.Err() == nil || a.Error() == callCancelled) && s.excuses.any(relayEnds) {
		return a, errNoAnswer
	}
	return a, err
}

// ask repeats a call that may be repeated until it has an answer without an error, or with one
// that the operation takes.
func (s *scene) ask(ctx context.Context, tool string, args map[string]any, takes accepted) (harness.Answer, error) {
	for {
		a, err := s.answer(ctx, tool, args)
		if err == nil {
			var final bool
			if final, err = s.judge(tool, a, takes); final {
				return a, nil
			}
		}
		if err != nil && !isNoAnswer(err) {
			return a, err
		}
		if a.Error() == string(contract.CodeKernelDead) { // it died too often in a row: the agent is told to do this
			_, _ = s.answer(ctx, "restart_kernel", nil)
		}
		pause(ctx, 50*time.Millisecond)
		if ctx.Err() != nil {
			return a, fmt.Errorf("%s still has no answer: %w: %s", tool, ctx.Err(), a.Text)
		}
	}
}

// find looks for a run whose submission has no answer, as an agent does. It returns "" if the
// VM does not list it.
func (s *scene) find(ctx context.Context, id string) (string, error) {
	a, err := s.ask(ctx, "list_executions", map[string]any{"limit": 200}, nil)
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

// begin submits a run with run_code_long. It returns the answer, or an empty one with the id of
// the run that was found; false if the run never began or is gone.
func (s *scene) begin(ctx context.Context, x *submission) (a harness.Answer, begun bool, err error) {
	a, err = s.call(ctx, "run_code_long", map[string]any{"code": x.code})
	if err == nil {
		x.take(a)
	} else if !isNoAnswer(err) {
		return a, false, err
	}
	if x.executionID == "" {
		a = harness.Answer{}
		x.executionID, err = s.find(ctx, x.id)
	} else {
		err = nil
	}
	return a, x.executionID != "", err
}

// get reads a run from offset. found is false if the VM that had it is gone.
func (s *scene) get(ctx context.Context, x *submission, offset int64, wait float64) (a harness.Answer, found bool, err error) {
	a, err = s.ask(ctx, "get_execution", map[string]any{"execution_id": x.executionID, "offset": offset, "wait_seconds": wait}, s.runEnds(x))
	if err != nil || a.Error() == string(contract.CodeNotFound) {
		return a, false, err
	}
	x.take(a)
	return a, true, nil
}

// runEnds are ends, and the statuses in which the run may end without a fault.
func (s *scene) runEnds(x *submission) accepted {
	all := maps.Clone(ends)
	maps.Copy(all, x.expected)
	return all
}

// follow reads the rest of a run until its end. begun is the answer that had the beginning. An
// answer that waited and omits text is head and tail; then pages follow, which omit nothing.
func (s *scene) follow(ctx context.Context, x *submission, begun harness.Answer) error {
	text, offset, wait := begun.String("stdout"), begun.Int("next_offset"), 3.0
	if begun.Fields["truncated"] == true {
		text, offset, wait = "", 0, 0
	}
	for {
		a, found, err := s.get(ctx, x, offset, wait)
		if err != nil || !found {
			return err
		}
		omits, next := a.Fields["truncated"] == true, a.Int("next_offset")
		if omits && wait > 0 {
			wait = 0
			continue
		}
		text += a.String("stdout")
		if x.over() && !omits {
			return x.checkText("the pages of run "+x.id, x.reported, text)
		}
		if next < offset || omits && next == offset {
			return fmt.Errorf("run %s: the page at offset %d ends at offset %d", x.id, offset, next)
		}
		offset = next
		if !omits {
			wait = 3
		}
	}
}

// checkText compares what was read of a run that ended with the status with what it prints.
func (x *submission) checkText(what string, status contract.Status, text string) error {
	if x.anything || x.printed(text, status == contract.StatusSucceeded) {
		return nil
	}
	return fmt.Errorf("%s (%s) have %q, it prints %q", what, status, clip(text), clip(x.output))
}

// gapLine is how an answer shows that output is missing.
var gapLine = regexp.MustCompile(`\n?\[… \d+ bytes are not in the log on the VM …\]\n`)

// printed reports whether the text is the beginning of the run's output, all of it if it is
// complete. Between gaps, of which only a lossy run may have some, it has parts of the output in
// their order.
func (x *submission) printed(text string, complete bool) bool {
	parts, rest := []string{text}, x.output
	if x.lossy {
		parts = gapLine.Split(text, -1)
	}
	for n, part := range parts {
		at := strings.Index(rest, part)
		if at < 0 || at > 0 && n == 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	last := parts[len(parts)-1]
	return !complete || rest == "" || len(parts) > 1 && strings.HasSuffix(x.output, last)
}

// clip shortens a text for a message.
func clip(text string) string {
	if len(text) <= 600 {
		return text
	}
	return fmt.Sprintf("%s…(%d bytes)…%s", text[:300], len(text), text[len(text)-300:])
}

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

func (q *quick) do(ctx context.Context, s *scene) {
	for n := range q.runs {
		id := fmt.Sprintf("%sr%d", q.name, n)
		x := s.submission(id, fmt.Sprintf("print('out %s')", id), "out "+id+"\n")
		a, err := s.call(ctx, "run_code_quick", map[string]any{"code": x.code})
		if isNoAnswer(err) {
			continue
		}
		harness.Check(err)
		x.take(a)
		if x.reported == contract.StatusSucceeded {
			harness.Check(x.checkText("the answer of run "+id, x.reported, a.String("stdout")))
		}
	}
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

func (l *long) do(ctx context.Context, s *scene) {
	x := l.submission(s)
	a, begun, err := s.begin(ctx, x)
	if err == nil && begun {
		err = s.follow(ctx, x, a)
	}
	harness.Check(err)
}

// newPaged returns a run whose output fills several pages.
func newPaged(r *rand.Rand, name string) operation { return &long{name, 2000 + r.IntN(4000), 0} }
