package job

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// hold submits a job whose first step waits for input, and returns that one's execution.
func (b *bench) hold(id string, more ...string) (executionID string) {
	b.t.Helper()
	b.submit(contract.JobSubmit{JobID: id, Steps: steps(append([]string{"input()"}, more...)...)})
	return b.await(id, func(x contract.Job) bool { return x.Cause == contract.CauseInput }).Steps[0].ExecutionID
}

func (b *bench) release(executionID string) {
	b.t.Helper()
	if err := b.queue.Input(b.t.Context(), executionID, contract.Input{}); err != nil {
		b.t.Fatal(err)
	}
}

func ids(x contract.Job) string {
	var all []string
	for _, e := range x.Steps {
		all = append(all, e.StepID)
	}
	return strings.Join(all, " ")
}

func TestAPatchReplacesWhatHasNotBegun(t *testing.T) {
	t.Parallel()
	b := newBench(t, settings{})
	held := b.hold("j", "print('old b')", "print('old c')")
	first := contract.JobPatch{PatchID: "p1", From: "b", Steps: []contract.JobStep{
		{StepID: "c", Code: "print('new c')", SkipIfFailed: []string{"a"}}, {StepID: "b", Code: "print('new b')"},
	}}
	for range 2 { // a repeated one changes nothing
		x, err := b.Patch("j", first)
		if err != nil || x.Revision != 1 || b.planned("j") != "a c b" {
			t.Fatalf("patched: %+v, %v", x, err)
		}
	}
	x, err := b.Patch("j", contract.JobPatch{PatchID: "p2", Revision: 1, Steps: []contract.JobStep{{StepID: "d", Code: "print('d')"}}})
	if err != nil || x.Revision != 2 || b.planned("j") != "a c b d" {
		t.Fatalf("added: %+v, %v", x, err)
	}
	for name, p := range map[string]contract.JobPatch{
		"an earlier revision":       {PatchID: "p3", Revision: 1, From: "d", Steps: steps("1")},
		"a step that has begun":     {PatchID: "p3", Revision: 2, From: "a", Steps: steps("1")},
		"a step that is not there":  {PatchID: "p3", Revision: 2, From: "x", Steps: steps("1")},
		"another patch with its id": {PatchID: "p2", Revision: 2, From: "d"},
	} {
		if _, err := b.Patch("j", p); !errors.Is(err, ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, p := range map[string]contract.JobPatch{
		"no id":                     {Revision: 2},
		"a step_id twice":           {PatchID: "p3", Revision: 2, From: "d", Steps: steps("1")},
		"a later step to depend on": {PatchID: "p3", Revision: 2, From: "d", Steps: []contract.JobStep{{StepID: "e", Code: "1", SkipIfFailed: []string{"d"}}}},
		"no code":                   {PatchID: "p3", Revision: 2, From: "d", Steps: []contract.JobStep{{StepID: "e"}}},
	} {
		if _, err := b.Patch("j", p); !errors.Is(err, ErrBad) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.release(held)
	x = b.end("j")
	wantState(t, x, contract.JobFinished, "")
	for i, want := range []string{"", "new c\n", "new b\n", "d\n"} {
		if got := b.text(x.Steps[i].ExecutionID); got != want {
			t.Errorf("step %s printed %q, want %q", x.Steps[i].StepID, got, want)
		}
	}
	if _, err := b.Patch("j", contract.JobPatch{PatchID: "p4", Revision: 2, Steps: steps("1")}); !errors.Is(err, ErrConflict) {
		t.Errorf("after the end: %v", err)
	}
	if x, err := b.Patch("j", first); err != nil || x.Revision != 2 {
		t.Errorf("the first one repeated after the end: %+v, %v", x, err)
	}
	if again := opened(t, b.dir); again.byID["j"] == nil || ids(again.byID["j"].snapshotLocked(0)) != "a c b d" {
		t.Error("the next executor does not know the patched steps")
	} else if x, err := again.Patch("j", first); err != nil || x.Revision != 2 {
		t.Errorf("repeated at the next executor: %+v, %v", x, err)
	}
}

func TestAPatchMayLeaveNothingToDo(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	b := newBench(t, settings{})
	held := b.hold("holder")
	b.submitAs("other", contract.JobSubmit{JobID: "empty", Steps: steps("1", "2")})
	b.submitAs("other", contract.JobSubmit{JobID: "skips", Steps: steps("1")})
	if _, err := b.Patch("empty", contract.JobPatch{PatchID: "p", From: "a"}); err != nil {
		t.Fatal(err)
	}
	b.release(held)
	x := b.end("empty")
	wantState(t, x, contract.JobFinished, "")
	if x.Entries != 0 || len(x.Steps) != 0 {
		t.Errorf("it has %+v", x)
	}
	b.end("holder")
	b.end("skips")
}

func TestALoopThatHasBegunIsNotPatched(t *testing.T) {
	t.Parallel()
	b := newBench(t, settings{})
	b.submit(contract.JobSubmit{JobID: "j", Loop: &contract.JobLoop{Code: "input()", Again: "False", MaxRounds: 1}})
	x := b.await("j", func(x contract.Job) bool { return x.Cause == contract.CauseInput })
	if _, err := b.Patch("j", contract.JobPatch{PatchID: "p", Steps: steps("1")}); !errors.Is(err, ErrConflict) {
		t.Errorf("patched: %v", err)
	}
	b.release(x.Steps[0].ExecutionID)
	b.end("j")
}

// Patches race with the starts of the steps that they replace: each step that ran is one that
// the job has, and no accepted patch is ignored.
func TestPatchesRaceWithTheNextStepsStart(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	b := newBench(t, settings{})
	const most = 60
	var first []contract.JobStep
	for n := range most {
		first = append(first, contract.JobStep{StepID: fmt.Sprint("s", n), Code: fmt.Sprintf("ran.append('s%d')", n)})
	}
	b.run("other", "ran = []")
	b.submit(contract.JobSubmit{JobID: "j", Steps: first})
	var wg sync.WaitGroup
	for relay := range 2 {
		wg.Go(func() {
			for n := 0; ; n++ {
				x, _, err := b.look("j", 0)
				if err != nil || x.State.Ended() {
					return
				}
				at := min(x.Next+n%3, x.StepCount-1) // may have begun by now
				name := fmt.Sprintf("r%d-%d", relay, n)
				from := strings.Fields(b.planned("j"))[at]
				p := contract.JobPatch{PatchID: name, Revision: x.Revision, From: from}
				for i := at; i < x.StepCount; i++ {
					id := fmt.Sprintf("%s-%d", name, i)
					p.Steps = append(p.Steps, contract.JobStep{StepID: id, Code: fmt.Sprintf("ran.append(%q)", id)})
				}
				if _, err := b.Patch("j", p); err != nil && !errors.Is(err, ErrConflict) {
					t.Errorf("patch %s: %v", name, err)
				}
			}
		})
	}
	wg.Wait()
	x := b.end("j")
	wantState(t, x, contract.JobFinished, "")
	run := b.run("other", "print(*ran)")
	if got := strings.TrimSpace(b.text(run.ExecutionID)); got != ids(x) {
		t.Errorf("what ran is\n%s\nand the job has\n%s", got, ids(x))
	}
	if x.Revision == 0 {
		t.Error("no patch was accepted")
	}
}

// A job is patched as often as it may be, with many steps. Its record stays small, and has the last
// steps after a kill.
func TestTheRecordOfAPatchedJobStaysSmall(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	b := newBench(t, settings{})
	b.hold("j", "1")
	path, from, want := only(t, b.dir), "b", ""
	for revision := range contract.MaxJobPatches {
		p := contract.JobPatch{PatchID: fmt.Sprint("p", revision), Revision: revision, From: from}
		for i := range 100 {
			p.Steps = append(p.Steps, contract.JobStep{StepID: fmt.Sprintf("%0*d", contract.MaxStepIDLen, 1000*revision+i), Code: "1"})
		}
		if _, err := b.Patch("j", p); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() > maxPatched+1<<20 {
			t.Fatalf("after %d patches the record has %d bytes, %v", revision+1, info.Size(), err)
		}
		from, want = p.Steps[0].StepID, "a"
		for _, s := range p.Steps {
			want += " " + s.StepID
		}
	}
	if _, err := b.Patch("j", contract.JobPatch{PatchID: "more", Revision: contract.MaxJobPatches}); !errors.Is(err, ErrConflict) {
		t.Errorf("one more: %v", err)
	}
	killed := t.TempDir()
	if err := os.CopyFS(killed, os.DirFS(b.dir)); err != nil {
		t.Fatal(err)
	}
	x := opened(t, killed).byID["j"].snapshotLocked(0)
	if x.Revision != contract.MaxJobPatches || ids(x) != want || len(x.Steps) != 101 {
		t.Errorf("after a kill: revision %d, %d steps: %.200s, want %.200s", x.Revision, len(x.Steps), ids(x), want)
	}
}
