package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"colabrelay/executor/execution"
	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// code is a comment of n bytes.
func code(n int) string { return "#" + strings.Repeat("x", n-1) }

func many(n int) (all []contract.JobStep) {
	for i := range n {
		all = append(all, contract.JobStep{StepID: fmt.Sprint("s", i), Code: "1"})
	}
	return all
}

func TestTheContentOfAJobIsBounded(t *testing.T) {
	tier.Long(t)
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
		"kernel_id":       func(s *contract.JobSubmit) { s.KernelID += "k" },
		"no job_id":       func(s *contract.JobSubmit) { s.JobID = "" },
		"a path":          func(s *contract.JobSubmit) { s.JobID = "../j" },
		"step_id":         func(s *contract.JobSubmit) { s.Steps[0].StepID += "s" },
		"source_name":     func(s *contract.JobSubmit) { s.Steps[0].SourceName += "n" },
		"attempts":        func(s *contract.JobSubmit) { s.Steps[0].Attempts++ },
		"less than none":  func(s *contract.JobSubmit) { s.Steps[0].Attempts = -1 },
		"timeout":         func(s *contract.JobSubmit) { s.Steps[0].TimeoutSeconds++ },
		"NUL":             func(s *contract.JobSubmit) { s.Steps[0].Code = "1\x00" },
		"again":           func(s *contract.JobSubmit) { s.Loop.Again += "a" },
		"no again":        func(s *contract.JobSubmit) { s.Loop.Again = " " },
		"rounds":          func(s *contract.JobSubmit) { s.Loop.MaxRounds++ },
		"no rounds":       func(s *contract.JobSubmit) { s.Loop.MaxRounds = 0 },
		"loop's timeout":  func(s *contract.JobSubmit) { s.Loop.TimeoutSeconds++ },
		"loop's code":     func(s *contract.JobSubmit) { s.Loop.Code = "" },
		"nothing":         func(s *contract.JobSubmit) { s.Steps, s.Loop = nil, nil },
		"skips on itself": func(s *contract.JobSubmit) { s.Steps[1].SkipIfFailed = []string{"last"} },
		"a step_id twice": func(s *contract.JobSubmit) { s.Steps[0].StepID = "last" },
	} {
		s := good()
		change(&s)
		if _, err := check(s); !errors.Is(err, ErrBad) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(s *contract.JobSubmit){
		"code":        func(s *contract.JobSubmit) { s.Steps[1].Code += "x" },
		"loop's code": func(s *contract.JobSubmit) { s.Loop.Code += "x" },
		"steps":       func(s *contract.JobSubmit) { s.Steps = many(contract.MaxJobSteps + 1) },
		"small steps": func(s *contract.JobSubmit) {
			s.Steps = many(contract.MaxJobSteps)
			for i := range s.Steps {
				s.Steps[i].Code = code(contract.MaxJobCode/contract.MaxJobSteps + 1)
			}
		},
	} {
		s := good()
		change(&s)
		if _, err := check(s); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := check(contract.JobSubmit{JobID: "j", Steps: many(contract.MaxJobSteps)}); err != nil {
		t.Errorf("at the bound of steps: %v", err)
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
	tier.Long(t)
	t.Parallel()
	b := stopped(t) // which is the first of the 64
	accepted := 1
	for relay := range maxUnfinished / maxUnfinishedOfCaller {
		caller := fmt.Sprint("relay", relay)
		for n := range maxUnfinishedOfCaller {
			if accepted == maxUnfinished {
				break
			}
			b.submitAs(caller, contract.JobSubmit{JobID: fmt.Sprintf("%s-%d", caller, n), Steps: steps("1")})
			accepted++
		}
		if _, err := b.Submit(caller, contract.JobSubmit{JobID: "more", Steps: steps("1")}); !errors.Is(err, ErrTooMany) {
			t.Errorf("one past the bound of a caller: %v", err)
		}
	}
	if _, err := b.Submit("new", contract.JobSubmit{JobID: "more", Steps: steps("1")}); !errors.Is(err, ErrTooMany) {
		t.Errorf("one past the bound of all: %v", err)
	}
	if _, err := b.Delete(t.Context(), "relay0-3", false); err != nil {
		t.Fatal(err)
	}
	b.submitAs("new", contract.JobSubmit{JobID: "more", Steps: steps("1")})
	for _, x := range b.List(contract.MaxListJobs) {
		if x.JobID == "holder" {
			continue
		}
		if _, err := b.Delete(t.Context(), x.JobID, false); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheCodeOfWaitingJobsIsCountedInTheQueue(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	b := stopped(t)
	const mib = 1 << 20
	big := func(caller, id string, n int) error {
		_, err := b.Submit(caller, contract.JobSubmit{JobID: id, Steps: []contract.JobStep{{StepID: "s", Code: code(n)}, {StepID: "t", Code: "1"}}})
		return err
	}
	for n := range 4 {
		if err := big("a", fmt.Sprint("a", n), 7*mib-1); err != nil {
			t.Fatal(err)
		}
	}
	if err := big("a", "past", 5*mib); !errors.Is(err, execution.ErrQueuedCode) {
		t.Errorf("33 MiB of one caller: %v", err)
	}
	if err := big("b", "b", 5*mib); err != nil {
		t.Errorf("of another caller: %v", err)
	}
	grown := contract.JobPatch{PatchID: "p", From: "t", Steps: []contract.JobStep{{StepID: "t", Code: code(mib)}}}
	if _, err := b.Patch("b", grown); !errors.Is(err, execution.ErrQueuedCode) {
		t.Errorf("a patch past the bound: %v", err)
	}
	if x, err := b.Read(t.Context(), "b", 0, 0); err != nil || x.Revision != 0 || b.planned("b") != "s t" {
		t.Errorf("after the refused patch: %s, %+v, %v", b.planned("b"), x, err)
	}
	for n := range 4 {
		if _, err := b.Delete(t.Context(), fmt.Sprint("a", n), false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Patch("b", grown); err != nil {
		t.Errorf("when there is room: %v", err)
	}
	if _, err := b.Delete(t.Context(), "b", false); err != nil {
		t.Fatal(err)
	}
	if entries := len(opened(t, b.dir).order); entries != 6 {
		t.Errorf("%d jobs are on disk, and one was refused", entries)
	}
}

func TestPatchesOfAJobAreBounded(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	b := stopped(t)
	for n := range contract.MaxJobPatches {
		if _, err := b.Patch("holder", contract.JobPatch{PatchID: fmt.Sprint("p", n), Revision: n}); err != nil {
			t.Fatalf("patch %d: %v", n, err)
		}
	}
	if _, err := b.Patch("holder", contract.JobPatch{PatchID: "past", Revision: contract.MaxJobPatches}); !errors.Is(err, ErrConflict) {
		t.Errorf("one past the bound: %v", err)
	}
	if _, err := b.Patch("holder", contract.JobPatch{PatchID: "p0", Revision: 0}); err != nil {
		t.Errorf("the first one repeated: %v", err)
	}
}

func TestAnAnswerHasABoundedNumberOfEntries(t *testing.T) {
	t.Parallel()
	b := stopped(t)
	b.submit(contract.JobSubmit{JobID: "at", Steps: many(contract.MaxJobEntries)})
	b.submit(contract.JobSubmit{JobID: "past", Steps: many(contract.MaxJobEntries + 1)})
	for id, want := range map[string][]int{"at": {500, 0}, "past": {500, 1}} {
		if x, err := b.Read(t.Context(), id, 0, 0); err != nil || len(x.Steps) != 0 {
			t.Errorf("%s: %d entries are listed before the first has begun; %v", id, len(x.Steps), err)
		}
		if _, err := b.Delete(t.Context(), id, false); err != nil {
			t.Fatal(err)
		}
		for page, n := range want {
			x, err := b.Read(t.Context(), id, page*contract.MaxJobEntries, 0)
			if err != nil || len(x.Steps) != n || x.From != page*contract.MaxJobEntries {
				t.Errorf("%s: page %d has %d entries from %d, want %d; %v", id, page, len(x.Steps), x.From, n, err)
			}
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
	tier.Long(t)
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
		if _, err := js.Patch("old", contract.JobPatch{PatchID: "p"}); !errors.Is(err, ErrConflict) {
			t.Errorf("patched: %v", err)
		}
		if x, err := js.Delete(t.Context(), "old", true); err != nil || x.State != contract.JobCancelled {
			t.Errorf("deleted: %+v, %v", x, err)
		}
	}
	if _, err := b.Read(t.Context(), "unknown", 0, 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unknown job: %v", err)
	}

	b.ended("long", maxKeptEntries)
	if len(b.order) != 2 || b.byID["long"] == nil {
		t.Errorf("beside one with the most rounds, %d jobs are kept", len(b.order))
	}
	b.ended("newest", 0)
	if b.byID["long"] != nil || b.byID["newest"] == nil {
		t.Error("the long job is kept past the bound of entries")
	}
}

// ended adds a finished job with one step and so many rounds.
func (b *bench) ended(id string, rounds int) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	j := &Job{jobs: b.Jobs, id: id, sha256: digest(id), state: contract.JobRunning, steps: []step{{id: "a", status: "succeeded"}}, rounds: make([]round, rounds)}
	if err := j.createFile(); err != nil {
		b.t.Fatal(err)
	}
	b.addLocked(j)
	j.endLocked(contract.JobFinished, "", "")
}

func TestAJobWaitsWhileMemoryIsLow(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	var low atomic.Bool
	b := newBench(t, settings{memory: func() (uint64, uint64, error) {
		if low.Load() {
			return 8 << 30, 1 << 20, nil
		}
		return 1 << 30, 8 << 30, nil
	}})
	held := b.hold("j", "print('after')")
	low.Store(true)
	b.release(held)
	x := b.await("j", func(x contract.Job) bool { return x.Cause == contract.CauseLowMemory || x.State.Ended() })
	if x.State != contract.JobWaiting || x.Reason == "" || x.Next != 1 {
		t.Errorf("with little memory it is %+v", x)
	}
	low.Store(false)
	wantState(t, b.end("j"), contract.JobFinished, "")
}

func TestALineOfARecordIsBounded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		size int
		want error
	}{"at the bound": {maxLine, nil}, "one past it": {maxLine + 1, errDamaged}} {
		j := &Job{id: "j", steps: make([]step, 1), patches: map[string]string{}, file: &file{path: filepath.Join(t.TempDir(), "f")}}
		text := marshal(line{Index: new(int), Status: contract.StepSkipped})
		text = append(text[:len(text)-1], strings.Repeat(" ", test.size-len(text))+"\n"...)
		if err := os.WriteFile(j.file.path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := j.load(); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h := line{JobID: strings.Repeat("j", contract.MaxJobIDLen), Patches: map[string]string{}}
	for n := range contract.MaxJobSteps {
		h.Steps = append(h.Steps, fmt.Sprintf("%064d", n))
	}
	for n := range contract.MaxJobPatches {
		h.Patches[fmt.Sprintf("%064d", n)] = strings.Repeat("0", 64)
	}
	if n := len(marshal(h)); n > maxLine {
		t.Errorf("the longest first line has %d bytes, over the bound", n)
	}
}

func TestTextsOfAJobAreShortened(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	b := stopped(t)
	j := b.byID["holder"]
	for n, want := range map[int]bool{maxReason: true, maxReason + 1: false} {
		text := strings.Repeat("x", n)
		b.mu.Lock()
		j.setLocked(contract.JobRunning, "", text)
		kept := j.reason
		b.mu.Unlock()
		if (kept == text) != want || len(kept) > maxReason {
			t.Errorf("of a reason of %d bytes, %d are kept", n, len(kept))
		}
	}
	for n, want := range map[int]bool{maxName: true, maxName + 1: false} {
		name := strings.Repeat("E", n)
		b.mu.Lock()
		j.retryLocked(0, execution.Outcome{Execution: contract.Execution{Error: &contract.ExecutionError{EName: name}}})
		kept := j.reason
		j.retry = false
		j.setLocked(contract.JobRunning, "", "")
		b.mu.Unlock()
		if strings.Contains(kept, name) != want {
			t.Errorf("the reason with a name of %d bytes is %q", n, kept)
		}
	}
}
