package chunked

import (
	"strings"
	"testing"
	"time"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
)

func TestSmallerNDropsIterationsBeyondIt(t *testing.T) {
	t.Parallel()
	m, dir := borrow(t, stacks.Old(t)), t.TempDir()
	s := spec("", "assert i < 40\nresult = i", 50)
	if a := call(t, dir, s, m, long); a.Done != 40 || len(a.Results) != 40 {
		t.Fatalf("%d done, %v", a.Done, a.err)
	}
	vm := &interceptor{VM: m}
	s.N, s.OnChange = 10, Continue
	a := finish(t, dir, s, vm)
	if vm.count != 0 || len(a.Results) != 10 || a.Results[9].Iteration != 9 || len(a.Ranges) != 1 || a.Ranges[0].To != 10 {
		t.Errorf("%d batches, %d values, ranges %v", vm.count, len(a.Results), a.Ranges)
	}
	if text := strings.Join(a.Notes, "; "); !strings.Contains(text, "40 iterations were done; those from 10 on no longer count") || strings.Contains(text, "continues") {
		t.Errorf("notes %q", text)
	}
	if kept, err := Load(dir, s.Name); err != nil || kept.Done != 10 || kept.Status != StatusFinished {
		t.Errorf("kept %+v %v", kept, err)
	}
	s.N, s.OnChange = 12, Continue // larger again: the kernel has run those already
	if a := finish(t, dir, s, m); a.Ranges[0].To != 12 {
		t.Errorf("ranges %v", a.Ranges)
	}
}

func TestSmallerNInterruptsABatchThatIsNoLongerNeeded(t *testing.T) {
	t.Parallel()
	m, dir := borrow(t, stacks.Old(t)), t.TempDir()
	s := spec("", "import time\nresult = i\nif i == 5: time.sleep(60)", 10)
	a := call(t, dir, s, m, 300*time.Millisecond)
	for ; a.Done < 5; a = call(t, dir, s, m, 300*time.Millisecond) {
		if a.err != nil || a.Stop != nil {
			t.Fatalf("%v %s", a.err, a.why())
		}
	}
	batch := a.Batch.ExecutionID
	s.N, s.OnChange = 5, Continue
	if a = finish(t, dir, s, m); len(a.Results) != 5 {
		t.Errorf("%d values", len(a.Results))
	}
	if e, err := m.Execution(t.Context(), batch, 0, 0, 0); err != nil || e.Status != contract.StatusInterrupted {
		t.Errorf("the batch: %s %v", e.Status, err)
	}
}

// IPython's exit ends the kernel shortly after the cell.
func TestExitFailsTheIterationAndTheKernelSurvives(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		for _, code := range []string{"exit()", "quit()", "exit(keep_kernel=True)", "import sys; sys.exit(3)", "try:\n    exit()\nexcept Exception:\n    pass"} {
			s := spec("kept = 1", "if i == 2:\n  "+strings.ReplaceAll(code, "\n", "\n  "), 5)
			s.Name = code
			a := call(t, dir, s, m, long)
			a.checkStop(t, stop{Status: "failed", EName: "SystemExit", Done: 2, Iteration: 2})
		}
		s := spec("exit()", "1", 1)
		call(t, dir, s, m, long).checkStop(t, stop{Status: "failed", EName: "SystemExit", Iteration: -1, Setup: true})
		m.python("import time; time.sleep(.5)") // longer than the kernel's loop takes to end
		got := m.python("print(kept, 'ask_exit' in vars(get_ipython()), get_ipython().keepkernel_on_exit)")
		if got != "1 False None\n" {
			t.Errorf("afterwards: %q", got)
		}
	})
}

// The refusal of await suggests code that works.
func TestAwaitIsRefusedAndTheSuggestedCodeWorks(t *testing.T) {
	eachStack(t, func(t *testing.T, m *machine, dir string) {
		for _, c := range [][2]string{
			{"", "await f()"},
			{"", "x = [await f() for _ in 'a']"},
			{"", "if i:\n    async with f() as g: pass"},
			{"", "async for x in f(): pass"},
			{"", "[x async for x in f()]"},
			{"await f()", "1"},
		} {
			s := spec(c[0], c[1], 2)
			s.Name = c[0] + c[1]
			a := call(t, dir, s, m, long)
			a.checkStop(t, stop{Status: "failed", EName: "SyntaxError", Iteration: -1, Refused: true})
			if text := a.Stop.Execution.Error.EValue; !strings.Contains(text, "submit(asyncio.run, main()).result()") {
				t.Errorf("%q: %s", c, text)
			}
		}
		s := spec("import asyncio, concurrent.futures", `
async def main():
    async def numbers():
        for k in range(3):
            await asyncio.sleep(0)
            yield k
    return [k async for k in numbers()] + [await asyncio.sleep(0, i)]
result = concurrent.futures.ThreadPoolExecutor().submit(asyncio.run, main()).result()
`, 2)
		if a := finish(t, dir, s, m); len(a.Results) != 2 || string(a.Results[1].Value) != "[0,1,2,1]" {
			t.Errorf("%+v", a.Results)
		}
	})
}
