package job

import (
	"errors"
	"strings"
	"testing"

	"colabrelay/shared/contract"
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
