package job

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

// states is the path of the journal's file, and the lines in it.
func states(t testing.TB, dir string) (path string, lines []byte) {
	t.Helper()
	path = filepath.Join(dir, "executions", "states.log")
	text, err := os.ReadFile(path)
	must(t, err)
	return path, bytes.TrimRight(text, "\x00")
}

func TestTheNextExecutorKnowsAJobWhereverAKillCutTheStates(t *testing.T) {
	t.Parallel()
	b := newBench(t, settings{})
	s := contract.JobSubmit{JobID: "j", Steps: steps("1", "2"), Loop: &contract.JobLoop{Code: "i = 1", Again: "False", MaxRounds: 2}}
	b.submit(s)
	wantState(t, b.end("j"), contract.JobFinished, "")
	b.stop()
	path, whole := states(t, b.dir)
	head := bytes.IndexByte(whole, '\n') + 1
	possible := regexp.MustCompile(`^(succeeded ?)*((cancelled|lost) ?)?(not_run ?)*$`)
	cuts := []int{0, 1, head - 1, head, head + 1, len(whole) - 1, len(whole)}
	for at := head; at < len(whole); at += len(whole) / 50 {
		cuts = append(cuts, at)
	}
	for _, cut := range cuts {
		must(t, os.WriteFile(path, whole[:cut], 0o600))
		js := opened(t, b.dir)
		if cut < head { // its submit was never answered
			if len(js.order) != 0 {
				t.Errorf("cut at %d of %d: %+v", cut, head, js.order[0])
			}
			continue
		}
		before := ""
		for start := range 2 {
			x, err := js.Submit("caller", s)
			want, all := contract.JobKernelLost, statuses(x)
			if cut == len(whole) {
				want = contract.JobFinished
			}
			if err != nil || x.State != want || !possible.MatchString(all) || start > 0 && all != before {
				t.Errorf("cut at %d of %d: %s after %s, %s, %v", cut, len(whole), all, before, x.State, err)
			}
			before = all
			js = opened(t, b.dir)
		}
	}
}

func TestADeletedRecordIsWrittenAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, settings{})
	b.submit(contract.JobSubmit{JobID: "ended", Steps: steps("1")})
	b.end("ended")
	held := b.hold("j", "1", "2")
	must(t, os.RemoveAll(filepath.Join(b.dir, "executions")))
	if _, err := b.journal.Restore(); err != nil {
		t.Fatal(err)
	}
	b.release(held)
	b.end("j")
	js := opened(t, b.dir)
	for id, want := range map[string]string{"ended": "succeeded", "j": "succeeded succeeded succeeded"} {
		x, err := js.Read(t.Context(), id, 0, 0)
		if err != nil || x.State != contract.JobFinished || statuses(x) != want {
			t.Errorf("%s: %+v, %v", id, x, err)
		}
	}
}

// A damaged file has lost what it says of a job. The executions still name their job, so a repeated
// submit runs nothing.
func TestAJobWithoutARecordDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, settings{})
	s := contract.JobSubmit{JobID: "j", Steps: steps("1", "2")}
	b.submit(s)
	b.end("j")
	b.stop()
	path, whole := states(t, b.dir)
	var left []byte
	for text := range bytes.Lines(whole) {
		if !bytes.Contains(text, []byte(`"record"`)) {
			left = append(left, text...)
		}
	}
	must(t, os.WriteFile(path, left, 0o600))
	for range 2 { // starts
		js := opened(t, b.dir)
		x, err := js.Submit("caller", s)
		if err != nil || x.State != contract.JobKernelLost || x.Entries != 2 || x.KernelID == "" || !strings.Contains(x.Reason, "record is missing") || strings.Contains(x.Reason, "replaced") {
			t.Errorf("%+v, %v", x, err)
		}
		if len(js.order) != 0 {
			t.Errorf("%d jobs", len(js.order))
		}
	}
}

// Patches of many steps are written as one record, which the next executor reads.
func TestTheRecordOfAJobWithManyPatchesStaysSmall(t *testing.T) {
	t.Parallel()
	b := stopped(t)
	b.submit(contract.JobSubmit{JobID: "j", Steps: steps("1")})
	const patches = 2*maxHeads/contract.MaxJobSteps + 2
	for n := range patches {
		p := contract.JobPatch{Revision: n, Steps: many(contract.MaxJobSteps - 1)}
		if n > 0 {
			p.From = "s0"
		}
		_, err := b.Patch("j", p)
		must(t, err)
	}
	record, err := b.journal.JobRecord("j")
	must(t, err)
	if most := maxHeads/contract.MaxJobSteps + 1; len(record) > most {
		t.Errorf("the record has %d parts, want at most %d", len(record), most)
	}
	x, err := opened(t, b.dir).Submit("caller", contract.JobSubmit{JobID: "j", Steps: steps("1")})
	if err != nil || x.Revision != patches || x.StepCount != contract.MaxJobSteps {
		t.Errorf("revision %d of %d steps, %v", x.Revision, x.StepCount, err)
	}
}

// code is a comment of n bytes.
func code(n int) string { return "#" + strings.Repeat("x", n-1) }

func many(n int) (all []contract.JobStep) {
	for i := range n {
		all = append(all, contract.JobStep{StepID: fmt.Sprint("s", i), Code: "1"})
	}
	return all
}

func TestTheContentOfAJobIsBounded(t *testing.T) {
	t.Parallel()
	good := func() contract.JobSubmit {
		return contract.JobSubmit{
			JobID: strings.Repeat("j", contract.MaxJobIDLen), KernelID: strings.Repeat("k", contract.MaxKernelIDLen),
			Steps: []contract.JobStep{
				{StepID: strings.Repeat("s", contract.MaxStepIDLen), SourceName: strings.Repeat("n", contract.MaxSourceName), Code: "1", Attempts: contract.MaxJobAttempts, TimeoutSeconds: contract.MaxTimeout.Seconds()},
				{StepID: "last", Code: code(contract.MaxJobCode - 4)},
			},
			Loop: &contract.JobLoop{Code: "pass"[:3], Again: strings.Repeat("a", maxAgain), MaxRounds: contract.MaxJobRounds, TimeoutSeconds: contract.MaxTimeout.Seconds()},
		}
	}
	if _, err := check(good()); err != nil {
		t.Fatalf("at the bounds: %v", err)
	}
	for name, change := range map[string]func(s *contract.JobSubmit){
		"job_id":          func(s *contract.JobSubmit) { s.JobID += "j" },
		"a path":          func(s *contract.JobSubmit) { s.JobID = "../j" },
		"attempts":        func(s *contract.JobSubmit) { s.Steps[0].Attempts++ },
		"NUL":             func(s *contract.JobSubmit) { s.Steps[0].Code = "1\x00" },
		"no rounds":       func(s *contract.JobSubmit) { s.Loop.MaxRounds = 0 },
		"nothing":         func(s *contract.JobSubmit) { s.Steps, s.Loop = nil, nil },
		"a step_id twice": func(s *contract.JobSubmit) { s.Steps[0].StepID = "last" },
	} {
		s := good()
		change(&s)
		if _, err := check(s); !errors.Is(err, ErrBad) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(s *contract.JobSubmit){
		"code":  func(s *contract.JobSubmit) { s.Steps[1].Code += "x" },
		"steps": func(s *contract.JobSubmit) { s.Steps = many(contract.MaxJobSteps + 1) },
	} {
		s := good()
		change(&s)
		if _, err := check(s); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// stopped is jobs behind one that waits for input, so that nothing of them begins.
func stopped(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, settings{})
	b.hold("holder")
	t.Cleanup(func() { // before the bench ends
		if _, err := b.Delete(context.Background(), "holder", true); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestUnfinishedJobsAreBounded(t *testing.T) {
	t.Parallel()
	b := stopped(t) // which is the first of the 64
	accepted, ids := 1, []string{}
	for relay := range maxUnfinished / maxUnfinishedOfCaller {
		caller := fmt.Sprint("relay", relay)
		for n := range maxUnfinishedOfCaller {
			if accepted == maxUnfinished {
				break
			}
			ids = append(ids, fmt.Sprintf("%s-%d", caller, n))
			b.submitAs(caller, contract.JobSubmit{JobID: ids[len(ids)-1], Steps: steps("1")})
			accepted++
		}
		if _, err := b.Submit(caller, contract.JobSubmit{JobID: "more", Steps: steps("1")}); !errors.Is(err, ErrTooMany) {
			t.Errorf("one past the bound of a caller: %v", err)
		}
	}
	if _, err := b.Submit("new", contract.JobSubmit{JobID: "more", Steps: steps("1")}); !errors.Is(err, ErrTooMany) {
		t.Errorf("one past the bound of all: %v", err)
	}
	for _, id := range ids {
		if _, err := b.Delete(t.Context(), id, false); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAKnownJobIsReturnedAndRunsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, settings{})
	s := contract.JobSubmit{JobID: "j", Steps: steps("known = globals().get('known', 0) + 1")}
	b.submit(s)
	b.end("j")
	if x := b.submit(s); x.State != contract.JobFinished {
		t.Errorf("repeated: %+v", x)
	}
	for name, change := range map[string]func(s *contract.JobSubmit){
		"code":    func(s *contract.JobSubmit) { s.Steps[0].Code += " " },
		"timeout": func(s *contract.JobSubmit) { s.Steps[0].TimeoutSeconds = 1 },
		"a loop":  func(s *contract.JobSubmit) { s.Loop = &contract.JobLoop{Code: "1", Again: "False", MaxRounds: 1} },
	} {
		other := contract.JobSubmit{JobID: "j", Steps: steps(s.Steps[0].Code)}
		change(&other)
		if _, err := b.Submit("caller", other); !errors.Is(err, ErrOther) {
			t.Errorf("with other %s: %v", name, err)
		}
	}
	if run := b.run("other", "print(known)"); b.text(run.ExecutionID) != "1\n" {
		t.Errorf("it ran %q times", b.text(run.ExecutionID))
	}
}

func TestFinishedJobsAreKeptUpToTheirBoundsAndKnownBeyond(t *testing.T) {
	t.Parallel()
	b := stopped(t)
	old := contract.JobSubmit{JobID: "old", Steps: steps("1")}
	b.submit(old)
	if _, err := b.Delete(t.Context(), "old", false); err != nil {
		t.Fatal(err)
	}
	for n := range maxKept - 1 {
		b.ended(fmt.Sprint("j", n), 0)
	}
	if b.byID["old"] == nil {
		t.Error("at the bound, the oldest job is forgotten")
	}
	b.ended("past", 0)
	if b.byID["old"] != nil || len(b.order) != maxKept+1 {
		t.Errorf("past the bound, %d jobs are kept", len(b.order))
	}
	for _, js := range []*Jobs{b.Jobs, opened(t, b.dir)} {
		x, err := js.Submit("caller", old)
		if err != nil || x.State != contract.JobCancelled || x.Cause != contract.CauseDeleted || !strings.Contains(x.Reason, "no longer listed") {
			t.Errorf("the forgotten one, repeated: %+v, %v", x, err)
		}
		other := contract.JobSubmit{JobID: "old", Steps: steps("2")}
		if _, err := js.Submit("caller", other); !errors.Is(err, ErrOther) {
			t.Errorf("with other content: %v", err)
		}
		if x, err := js.Read(t.Context(), "old", 0, 0); err != nil || x.State != contract.JobCancelled {
			t.Errorf("read: %+v, %v", x, err)
		}
	}
}

// ended adds a finished job with one step and so many rounds.
func (b *bench) ended(id string, rounds int) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.newJob()
	j.JobID, j.sha256 = id, digest(id)
	j.setSteps([]step{{JobStep: contract.JobStep{StepID: "a"}}})
	j.entry(rounds)
	must(b.t, j.writeHeadLocked())
	b.addLocked(j)
	j.endLocked(contract.JobFinished, "", "")
}
