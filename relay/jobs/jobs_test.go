package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/shared/contract"
)

// log is what a follower was told.
type log struct {
	text strings.Builder
	stop string // the line after which it stops
}

func (l *log) add(format string, args ...any) (more bool) {
	line := fmt.Sprintf(format, args...)
	l.text.WriteString(line + "\n")
	return line != l.stop
}

func (l *log) options(until time.Duration) FollowOptions {
	return FollowOptions{
		Until: time.Now().Add(until),
		Visit: func(e Entry, x contract.Execution) bool {
			more := true
			for _, ev := range x.Events {
				more = l.add("%d %s", e.Index, ev.Text) && more
			}
			return more
		},
		Done: func(e Entry, x contract.Execution) bool {
			forgotten := ""
			if e.Forgotten {
				forgotten = " forgotten"
			}
			return l.add("%d ended: %s%s %s", e.Index, e.Status, forgotten, x.ExecutionID)
		},
	}
}

// bench is a ticket of a job of three steps, in a bubble of fake time.
type bench struct {
	*memoryVM
	t     *testing.T
	s     contract.JobSubmit
	at    Ticket
	saved Ticket // as it was before the submit
	log
}

func inBubble(t *testing.T, f func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{memoryVM: newVM("vm"), t: t}
		b.s.Steps = []contract.JobStep{{StepID: "a", Code: "1"}, {StepID: "b", Code: "2"}, {StepID: "c", Code: "3"}}
		b.at = New("vm", b.s)
		b.must(b.at.Submit(t.Context(), b, b.save))
		f(b)
	})
}

// save keeps the ticket as it was before the submit.
func (b *bench) save() error {
	if !b.saved.MayRun {
		b.saved = b.at
	}
	return nil
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) follow(until time.Duration) contract.Job {
	b.t.Helper()
	j, err := b.at.Follow(b.t.Context(), b, b.options(until))
	b.must(err)
	return j
}

func (b *bench) wants(lines ...string) {
	b.t.Helper()
	got := strings.Split(strings.TrimSuffix(b.text.String(), "\n"), "\n")
	b.text.Reset()
	if !slices.Equal(got, lines) {
		b.t.Errorf("it was told\n%q, want\n%q", got, lines)
	}
}

func (b *bench) run(text string, status contract.Status) {
	id := b.Begin()
	b.Print(id, text)
	b.End(status, false)
}

func TestALaterCallGoesOnWhereTheTicketIs(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.run("x", contract.StatusSucceeded)
		id := b.Begin()
		b.Print(id, "first")
		b.stop = "1 first"
		b.follow(time.Minute)
		b.wants("0 x", "0 ended: succeeded vm-0-0", "1 first")
		b.Print(id, "second")
		b.End(contract.StatusFailed, false)
		b.Finish(contract.JobFailed, contract.CauseStepFailed)
		b.stop = ""
		b.follow(time.Minute)
		b.wants("1 second", "1 ended: failed vm-1-0", "2 ended: not_run ")
		if b.at.Cause != contract.CauseStepFailed || b.at.Entry != 3 {
			t.Errorf("the ticket is %+v", b.at)
		}
		b.follow(time.Minute)
		b.wants("")
	})
}

func TestAnEntryEndsWithItsLastAttempt(t *testing.T) {
	inBubble(t, func(b *bench) {
		go func() {
			id := b.Begin()
			b.Print(id, "first")
			b.End(contract.StatusFailed, true)
			<-time.After(5 * time.Second)
			id = b.Begin()
			b.Print(id, "again")
			<-time.After(5 * time.Second)
			b.End(contract.StatusSucceeded, false)
			b.Omit()
			b.Finish(contract.JobCancelled, contract.CauseDeleted)
		}()
		b.follow(time.Minute)
		b.wants("0 first", "0 again", "0 ended: succeeded vm-0-1", "1 ended: skipped ", "2 ended: not_run ")
	})
}

func TestAJobWhoseAnswerWasLostIsFoundAndRunsOnce(t *testing.T) {
	inBubble(t, func(b *bench) {
		again := b.saved
		if again.Accepted || !again.MayRun || again.Unsent == nil {
			t.Fatalf("before the submit, the disk had %+v", again)
		}
		b.must(again.Submit(b.t.Context(), b, b.save))
		b.run("once", contract.StatusSucceeded)
		b.Finish(contract.JobFinished, "")
		b.follow(time.Minute)
		b.wants("0 once", "0 ended: succeeded vm-0-0", "1 ended: not_run ", "2 ended: not_run ")
	})
}

func TestAnotherVMRunsNothingOfTheJob(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.Replace("new")
		_, err := b.at.Follow(b.t.Context(), b, b.options(time.Minute))
		for what, err := range map[string]error{"follow": err, "submit": b.saved.Submit(b.t.Context(), b, b.save), "edit": b.at.Edit(b.t.Context(), b, "b", nil)} {
			if !errors.Is(err, ErrReplaced) {
				t.Errorf("%s: %v", what, err)
			}
		}
		b.must(b.at.Stop(b.t.Context(), b, true))
	})
}

func TestWhatTheVMHasForgottenIsSaid(t *testing.T) {
	inBubble(t, func(b *bench) {
		lost := New("vm", b.s)
		if _, err := lost.Follow(b.t.Context(), b, b.options(time.Minute)); !errors.Is(err, ErrUnknown) {
			t.Errorf("a job that never arrived: %v", err)
		}
		b.run("gone", contract.StatusSucceeded)
		b.run("kept", contract.StatusSucceeded)
		b.Forget("vm-0-0")
		b.stop = "1 ended: succeeded vm-1-0"
		b.follow(time.Minute)
		b.wants("0 ended: succeeded forgotten ", "1 kept", "1 ended: succeeded vm-1-0")
		b.run("unlisted", contract.StatusSucceeded)
		b.Finish(contract.JobFinished, "")
		b.Forget("")
		if _, err := b.at.Follow(b.t.Context(), b, b.options(time.Minute)); !errors.Is(err, ErrUnknown) {
			t.Errorf("steps that are not listed any more: %v", err)
		}
	})
}

func TestStepsThatHaveNotBegunAreReplaced(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.run("x", contract.StatusSucceeded)
		b.must(b.at.Edit(b.t.Context(), b, "b", []contract.JobStep{{StepID: "d", Code: "4"}}))
		if steps := b.Steps(); len(steps) != 2 || steps[1].StepID != "d" || b.at.Revision != 1 {
			t.Errorf("the steps are %+v, revision %d", steps, b.at.Revision)
		}
		other := b.at
		b.must(other.Edit(b.t.Context(), b, "", []contract.JobStep{{StepID: "e", Code: "5"}}))
		refused, _ := errors.AsType[*contract.Error](b.at.Edit(b.t.Context(), b, "d", nil))
		if refused == nil || refused.Code != contract.CodeConflict {
			t.Errorf("an edit of what another relay has edited: %v", refused)
		}
	})
}

func TestFollowReturnsWhenTheTimeIsOverOrSomebodyIsAsked(t *testing.T) {
	inBubble(t, func(b *bench) {
		began := time.Now()
		if j := b.follow(7 * time.Second); j.State != contract.JobQueued || time.Since(began) > 8*time.Second {
			t.Errorf("after %s it is %s", time.Since(began), j.State)
		}
		b.SetBehind(&contract.Behind{ExecutionID: "other", Status: contract.StatusWaitingForInput})
		began = time.Now()
		if j := b.follow(time.Hour); j.Behind == nil || time.Since(began) > time.Second {
			t.Errorf("behind a run that asks it returned after %s: %+v", time.Since(began), j)
		}
		o := b.options(time.Minute)
		o.BehindInput = true
		if _, err := b.at.Follow(b.t.Context(), b, o); err != nil || time.Since(began) < time.Minute {
			t.Errorf("it waited %s, %v", time.Since(began), err)
		}
	})
}

// What was read of an entry stands, whatever a later answer says, also in another process.
func TestWhatWasReadOfAnEntryStands(t *testing.T) {
	for _, status := range []contract.Status{contract.StatusSucceeded, contract.StatusFailed} {
		inBubble(t, func(b *bench) {
			id := b.Begin()
			b.Print(id, "x")
			b.stop = "0 x"
			b.follow(time.Minute)
			b.at.Read = status // as if the call had ended just then
			b.End(contract.StatusInterrupted, false)
			b.stop = fmt.Sprintf("0 ended: %s %s", status, id)
			b.follow(time.Minute)
			b.wants("0 x", b.stop)
		})
	}
	inBubble(t, func(b *bench) { // an entry that is said to have ended with nothing
		vm := forger{b.memoryVM, func(j *contract.Job) {
			j.Steps = []contract.JobEntry{{StepID: "a", Status: contract.StepStatus(contract.StatusSucceeded)}}
		}, nil}
		b.stop = "0 ended: lost "
		_, err := b.at.Follow(b.t.Context(), vm, b.options(time.Minute))
		b.must(err)
		b.wants(b.stop)
	})
}

// A job does not take back what was read of it.
func TestTheHeadOfAJobGoesOnlyForward(t *testing.T) {
	known := Ticket{JobID: "j", KernelID: "k", State: contract.JobRunning, Entry: 3}
	for name, change := range map[string]func(j *contract.Job){
		"another job":    func(j *contract.Job) { j.JobID = "other" },
		"another kernel": func(j *contract.Job) { j.KernelID = "other" },
		"fewer entries":  func(j *contract.Job) { j.Entries-- },
	} {
		j, at := contract.Job{JobID: "j", KernelID: "k", Entries: 3, State: contract.JobRunning}, known
		if err := at.see(j); err != nil {
			t.Fatal(err)
		}
		if change(&j); !errors.Is(at.see(j), ErrAnswer) || at != known {
			t.Errorf("%s: %+v", name, at)
		}
	}
	at := known
	at.State = contract.JobFailed
	if err := at.see(contract.Job{JobID: "j", State: contract.JobRunning, Entries: 3}); !errors.Is(err, ErrAnswer) || at.State != contract.JobFailed {
		t.Errorf("after its end it runs: %v", err)
	}
}

// An execution counts for the entry of which it is, and for no other one, in this job or another.
func TestAnExecutionOfAnotherEntryIsRefused(t *testing.T) {
	for name, change := range map[string]func(x *contract.Execution){
		"another execution":     func(x *contract.Execution) { x.ExecutionID = "other" },
		"another entry":         func(x *contract.Execution) { x.Job.Index-- },
		"another job":           func(x *contract.Execution) { x.Job.JobID = "other" },
		"no job":                func(x *contract.Execution) { x.Job = nil },
		"another kernel":        func(x *contract.Execution) { x.KernelID = "other" },
		"the one of before":     nil, // in one answer
		"that of before, later": nil, // in answers of one entry each
		"nothing, as it should": func(*contract.Execution) {},
	} {
		inBubble(t, func(b *bench) {
			b.run("first", contract.StatusSucceeded)
			b.run("second", contract.StatusSucceeded)
			b.Finish(contract.JobFinished, "")
			vm := forger{b.memoryVM, func(j *contract.Job) {
				if strings.HasSuffix(name, "later") {
					j.Steps = j.Steps[:min(1, len(j.Steps))]
				}
				for i := range j.Steps {
					if j.From+i == 1 && change == nil {
						j.Steps[i].ExecutionID = "vm-0-0"
					}
				}
			}, func(x *contract.Execution) {
				if x.Job != nil && x.Job.Index == 1 && change != nil {
					change(x)
				}
			}}
			_, err := b.at.Follow(b.t.Context(), vm, b.options(time.Minute))
			fits := strings.HasPrefix(name, "nothing")
			if errors.Is(err, ErrAnswer) == fits || b.at.Entry > 1 && !fits {
				t.Errorf("%s: %v, after entry %d", name, err, b.at.Entry)
			}
			if text := b.text.String(); strings.Contains(text, "second") != fits || strings.Count(text, "first") > 1 {
				t.Errorf("%s:\n%s", name, text)
			}
		})
	}
}

// forger is a VM whose answers are changed.
type forger struct {
	*memoryVM
	job       func(j *contract.Job)
	execution func(x *contract.Execution)
}

func (f forger) Job(ctx context.Context, id string, from int, wait time.Duration) (contract.Job, error) {
	j, err := f.memoryVM.Job(ctx, id, from, wait)
	f.job(&j)
	return j, err
}

func (f forger) Execution(ctx context.Context, id string, offset int64, wait time.Duration, most int64) (contract.Execution, error) {
	x, err := f.memoryVM.Execution(ctx, id, offset, wait, most)
	if x.Job != nil {
		of := *x.Job
		x.Job = &of
	}
	f.execution(&x)
	return x, err
}
