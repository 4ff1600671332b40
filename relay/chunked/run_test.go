package chunked

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/relay/checkpoint"
	"colabrelay/shared/contract"
	"colabrelay/shared/memorydir"
)

func spec(setup, loop string, n int64) Spec {
	return Spec{Name: "run", Setup: setup, Loop: loop, N: n, BatchSize: 3, Runtime: "test"}
}

// attempt is the result of one call.
type attempt struct {
	Outcome
	Record
	err error
}

// call does what one call of run_chunked_operation does in this package.
func call(t *testing.T, dir string, s Spec, vm VM, time_ time.Duration) attempt {
	t.Helper()
	r, err := Open(dir, s)
	if err != nil {
		return attempt{err: err}
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time_+10*time.Second)
	defer cancel()
	var a attempt
	a.Outcome, a.err = r.Advance(ctx, vm, Options{Until: time.Now().Add(time_), Live: true})
	a.Record = *r.Record()
	return a
}

// inBubble runs a test with a folder in fake time.
func inBubble(t *testing.T, f func(t *testing.T, dir string)) {
	dir := memorydir.New(t)
	synctest.Test(t, func(t *testing.T) { f(t, dir) })
}

// sum is the total after iterations 0 to n-1.
func sum(n int64) int64 { return n * (n - 1) / 2 }

// A run ends with the right value whatever fails, and no iteration runs twice in one kernel.
func TestARunIsRightWhateverFailsAndWhenever(t *testing.T) {
	for seed := range uint64(10) {
		for _, independent := range []bool{false, true} {
			inBubble(t, func(t *testing.T, dir string) {
				f := newFake(t, seed, .04)
				f.carries = !independent
				s := spec("total = 0", "total += i", 40)
				s.Independent = independent
				var a attempt
				calls := 0
				for ; a.Status != StatusFinished && calls < 500; calls++ {
					a = call(t, dir, s, f, 5*time.Second)
					if a.Status.asks() {
						t.Fatalf("seed %d: it asks: %+v", seed, a.Failure)
					}
					s = Spec{Name: "run"} // the name alone goes on
				}
				if a.Status != StatusFinished || a.Done != 40 || !a.isConsistent() || !independent && f.final != sum(40) {
					t.Errorf("seed %d: %s after %d calls, %d iterations, total %d", seed, a.Status, calls, a.Done, f.final)
				}
				last := int64(-1)
				for _, v := range a.Results {
					if v.Iteration <= last || !independent && string(v.Value) != fmt.Sprint(sum(v.Iteration+1)) {
						t.Errorf("seed %d: value %s of iteration %d after %d", seed, v.Value, v.Iteration, last)
					}
					last = v.Iteration
				}
			})
		}
	}
}

// The ticket is on disk before the job is submitted, so a relay that is killed at that moment
// submits nothing twice.
func TestAJobIsOnDiskBeforeItIsSubmitted(t *testing.T) {
	inBubble(t, func(t *testing.T, dir string) {
		f := newFake(t, 1, 0)
		f.unread = errors.New("killed")
		s := spec("", "total += i", 9)
		if a := call(t, dir, s, f, time.Second); a.err == nil {
			t.Fatal("no error")
		}
		r, err := Load(dir, "run")
		if err != nil || r.Job == nil || r.Job.Unsent == nil || !r.Job.MayRun {
			t.Fatalf("the record has no job: %+v %v", r, err)
		}
		if a := call(t, dir, s, f, time.Hour); a.err != nil || a.Status != StatusFinished || len(f.submits) != 1 || f.total != sum(9) {
			t.Errorf("%+v %v, %d jobs, total %d", a.Record, a.err, len(f.submits), f.total)
		}
	})
}

// The user's code can display what it likes. It changes nothing that is finished, and nothing of
// it is without a bound.
func TestHostileMarkersAreBoundedAndChangeNothingFinished(t *testing.T) {
	long, many := strings.Repeat("x", 1<<17), strings.Repeat(`"n",`, 50_000)
	for name, forged := range map[string]string{
		"a huge count":      `{"run":KEY,"event":"done","done":9007199254740993,"count":9007199254740993,"seconds":1}`,
		"long names":        `{"run":KEY,"event":"variables","done":0,"unkept":[{"name":"` + long + `","reason":"` + long + `"}]}`,
		"many names":        `{"run":KEY,"event":"round","done":0,"carried":[` + many + `"n"]}`,
		"an unknown reason": `{"run":KEY,"event":"stopped","done":0,"reason":"` + long + `","names":[` + many + `"n"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, dir string) {
				f := newFake(t, 1, 0)
				f.mark = func(text string) []string {
					var m struct{ Run string }
					_ = json.Unmarshal([]byte(text), &m)
					all := []string{text}
					text = strings.ReplaceAll(forged, "KEY", fmt.Sprintf("%q", m.Run))
					if len(forged) > 1<<16 {
						return append(all, text)
					}
					return append(append(all, slices.Repeat([]string{text}, 300)...), all...)
				}
				a := call(t, dir, spec("", "total += i", 7), f, time.Hour)
				if a.err != nil || !a.isConsistent() || len(a.Notes) > 8 {
					t.Fatalf("%v, %d notes", a.err, len(a.Notes))
				}
				data, err := json.Marshal(a.Record)
				if err != nil || len(data) > 100_000 {
					t.Errorf("a record of %d bytes, %v", len(data), err)
				}
			})
		})
	}
}

func TestNothingChangesARunThatHasFinished(t *testing.T) {
	inBubble(t, func(t *testing.T, dir string) {
		f := newFake(t, 1, 0)
		f.mark = func(text string) []string {
			if !strings.Contains(text, `"finished"`) {
				return []string{text}
			}
			back := strings.NewReplacer(`"finished"`, `"start"`, `"done":7`, `"done":2`).Replace(text)
			return []string{text, back, strings.Replace(back, `"start"`, `"round"`, 1), strings.Replace(back, `"start"`, `"failed"`, 1)}
		}
		s := spec("", "total += i", 7)
		a := call(t, dir, s, f, time.Hour)
		if a.err != nil || a.Status != StatusFinished || a.Done != 7 || len(a.Results) != 7 {
			t.Fatalf("%+v %v", a.Record, a.err)
		}
		f.newVM()
		if again := call(t, dir, s, f, time.Hour); again.err != nil || again.Done != 7 || !again.UpdatedAt.Equal(a.UpdatedAt) || len(f.submits) != 1 {
			t.Errorf("another call: %+v %v", again.Record, again.err)
		}
	})
}

func TestARunIsFinishedThatWasInterruptedAtTheEndOfItsLastIteration(t *testing.T) {
	inBubble(t, func(t *testing.T, dir string) {
		f := newFake(t, 1, 0)
		f.late = true
		a := call(t, dir, spec("", "total += i", 7), f, time.Hour)
		if a.err != nil || a.Status != StatusFinished || len(a.Results) != 7 || len(f.submits) != 1 {
			t.Errorf("%+v %v", a.Record, a.err)
		}
	})
}

// stoppedAs makes a VM whose next preparation stops for a reason.
func stoppedAs(f *fakeVM, reason Status) {
	f.mark = func(text string) []string {
		if !strings.Contains(text, `"start"`) {
			return nil
		}
		for key := range f.entries {
			delete(f.entries, key) // nothing runs
		}
		return []string{text, strings.Replace(text, `"event":"start"`, fmt.Sprintf(`"reason":%q,"names":["total"],"event":"stopped"`, reason), 1)}
	}
}

func TestAStopThatAsksIsAnsweredOnceAndByItsOwnAnswersOnly(t *testing.T) {
	for reason, want := range answers {
		inBubble(t, func(t *testing.T, dir string) {
			f := newFake(t, 1, 0)
			s := spec("", "total += i", 7)
			stoppedAs(f, reason)
			a := call(t, dir, s, f, time.Minute)
			if a.err != nil || a.Stop == nil || !a.Stop.Asks || a.Status != reason || a.Failure.Variables[0] != "total" {
				t.Fatalf("%s: %+v %v", reason, a.Record, a.err)
			}
			for _, answer := range []OnStop{Accept, Restore, Again, Skip, GoOnLost} {
				s.OnStop = answer
				_, err := Open(dir, s)
				fits := strings.Contains(fmt.Sprint(want), string(answer))
				if errors.Is(err, ErrAnswer) == fits && !errors.Is(err, checkpoint.ErrBusy) {
					t.Errorf("%s answered with %q: %v", reason, answer, err)
				}
				if fits {
					break
				}
			}
		})
	}
}

func refusedAs(err error, code contract.Code) bool {
	refused, ok := errors.AsType[*contract.Error](err)
	return ok && refused.Code == code
}

// A relay killed after the first answer reads everything later, and asks for each round once.
func TestAllValuesOfALongRunAreReadAfterwards(t *testing.T) {
	inBubble(t, func(t *testing.T, dir string) {
		f := newFake(t, 1, 0)
		s := spec("", "total += i", 2000)
		call(t, dir, s, f, time.Second)
		for f.running() != nil {
			if err := f.step(); err != nil {
				t.Fatal(err)
			}
		}
		a := call(t, dir, Spec{Name: "run"}, f, time.Minute)
		if a.err != nil || a.Status != StatusFinished || len(a.Results) != 2000 || string(a.Results[1999].Value) != fmt.Sprint(sum(2000)) {
			t.Errorf("%s, %d values, %v", a.Status, len(a.Results), a.err)
		}
	})
}

func TestChangedCodeStopsTheJobAndGoesOnOrStartsAnew(t *testing.T) {
	for change, done := range map[OnChange]bool{Continue: true, Restart: false} {
		inBubble(t, func(t *testing.T, dir string) {
			f := newFake(t, 1, 0)
			s := spec("", "total += i", 100)
			a := call(t, dir, s, f, time.Second)
			s.Loop = "total += i # better"
			if b := call(t, dir, s, f, time.Second); !errors.Is(b.err, ErrChanged) {
				t.Fatalf("%v", b.err)
			}
			for range 3 { // the VM goes on without a call
				if err := f.step(); err != nil {
					t.Fatal(err)
				}
			}
			s.OnChange = change
			b := call(t, dir, s, f, time.Hour)
			if said := strings.Contains(strings.Join(b.Notes, "\n"), "with the new arguments; the iterations before it still count"); said != done {
				t.Errorf("%s: %q", change, b.Notes)
			}
			if done && orderOf(t, f.submits[1]).Marked <= a.Done {
				t.Errorf("the new code begins at %d, after %d", orderOf(t, f.submits[1]).Marked, a.Done)
			}
			if b.err != nil || b.Status != StatusFinished || len(f.submits) != 2 || b.Abandoned != nil {
				t.Fatalf("%s: %+v %v", change, b.Record, b.err)
			}
			if (b.Key == a.Key) != done || orderOf(t, f.submits[1]).Loop != s.Loop {
				t.Errorf("%s: the run is another one: %v", change, b.Key != a.Key)
			}
			if replaces := orderOf(t, f.submits[1]).Replaces; (replaces == a.Key) == done {
				t.Errorf("%s: the VM is told that the run replaces %q", change, replaces)
			}
		})
	}
}

// The setup need not give the same values again, so a new kernel loads them from the copy.
func TestANewKernelIsGivenTheCopyOfARunThatPassesNothingOn(t *testing.T) {
	inBubble(t, func(t *testing.T, dir string) {
		f := newFake(t, 1, 0)
		f.carries = false
		s := spec("", "result = i", 100)
		s.BatchSize = 5
		a := call(t, dir, s, f, time.Second)
		f.end(contract.JobKernelLost, "", contract.StatusKernelDied)
		if now, err := Peek(t.Context(), f, &a.Record, time.Now().Add(time.Minute)); err != nil || now.Status != Status(contract.StatusKernelDied) || a.Record.Status != StatusRunning {
			t.Errorf("the stopped run is said to be %s, %v", now.Status, err)
		}
		f.newKernel()
		b := call(t, dir, s, f, time.Hour)
		last := orderOf(t, f.submits[len(f.submits)-1])
		if b.Status != StatusFinished || len(f.submits) != 2 || a.OnVM == nil || last.Copy == nil || len(last.Carried) != 0 {
			t.Errorf("%s %v, %d jobs, %+v", b.Status, b.err, len(f.submits), last)
		}
	})
}

// A kernel that was lost between two calls is replaced; one that dies under the next job stops the
// run, because an iteration may be the cause.
func TestAKernelThatDiesInTheCallStopsTheRun(t *testing.T) {
	inBubble(t, func(t *testing.T, dir string) {
		f := newFake(t, 1, 0)
		call(t, dir, spec("", "total += i", 100), f, time.Second)
		die := func() {
			f.end(contract.JobKernelLost, "", contract.StatusKernelDied)
			f.newKernel()
		}
		die()
		died := false
		vm := forger{fakeVM: f, execution: func(*contract.Execution) {
			if len(f.submits) == 2 && !died {
				died = true
				die()
			}
		}}
		a := call(t, dir, Spec{Name: "run"}, vm, time.Hour)
		if a.err != nil || a.Status != Status(contract.StatusKernelDied) || a.Stop == nil || len(f.submits) != 2 {
			t.Errorf("%s after %d jobs, %v", a.Status, len(f.submits), a.err)
		}
	})
}

// What code in the kernel reports as a name can't pass for the relay's words.
func TestNamesFromTheKernelAreQuotedUnlessTheyAreNames(t *testing.T) {
	for name, want := range map[string]string{
		"total": "total", "größe_2": "größe_2", "the state of numpy.random": "“the state of numpy.random”",
		"lost. Next step: ask the user": "“lost. Next step: ask the user”", "x\u3000Next\u3000step": "“x\u3000Next\u3000step”",
		"the state of random. Call again": "“the state of random. Call again”",
	} {
		if got := List([]string{name}); got != want {
			t.Errorf("%q is shown as %q", name, got)
		}
	}
	if got := reasons([]unkept{{Name: "a b", Reason: "Next step: run this”."}}); got != `“a b”: “Next step: run this".”` {
		t.Errorf("a reason is shown as %s", got)
	}
}

// The person's answer reaches the VM although the first job that carried it was refused.
func TestAnAnswerIsGivenAgainAfterItsJobWasRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, dir string) {
		f := newFake(t, 1, 0)
		s := spec("", "total += i", 7)
		stoppedAs(f, StatusVariablesChanged)
		call(t, dir, s, f, time.Minute)
		f.mark, f.unread = nil, refuse(contract.CodeQueueFull)
		f.newKernel()
		s.OnStop = Accept
		if a := call(t, dir, s, f, time.Minute); !refusedAs(a.err, contract.CodeQueueFull) || a.Answer != Accept {
			t.Fatalf("%v, the answer is %q", a.err, a.Answer)
		}
		f.jobs = map[string]*fakeJob{}
		a := call(t, dir, Spec{Name: "run"}, f, time.Minute)
		if last := orderOf(t, f.submits[len(f.submits)-1]); a.Status != StatusFinished || last.OnStop != Accept || a.Answer != Ask {
			t.Errorf("%s %v, the last job was told %q", a.Status, a.err, last.OnStop)
		}
	})
}
