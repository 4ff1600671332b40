package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"colabrelay/executor/execution"
	"colabrelay/executor/journal"
	"colabrelay/executor/kernel"
	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// modelJob is what the model knows of a job: the rules of contract.JobSubmit, stated again.
type modelJob struct {
	submit   contract.JobSubmit
	plan     []contract.JobStep
	statuses []contract.StepStatus // of the plan's steps, and of the rounds
	begun    map[string]int        // how often each step, and each round, began
	next     int
	retry    bool
	deleted  bool
	revision int
	patches  []contract.JobPatch
	state    contract.JobState
	cause    contract.JobCause
}

func (m *modelJob) end(state contract.JobState, cause contract.JobCause) {
	m.state, m.cause = state, cause
	for i, s := range m.statuses {
		if s == contract.StepWaits {
			m.statuses[i] = contract.StepNotRun
		}
	}
}

// status is that of a step of the plan.
func (m *modelJob) status(id string) contract.StepStatus {
	return m.statuses[slices.IndexFunc(m.plan, func(s contract.JobStep) bool { return s.StepID == id })]
}

// skip goes on to the next step that is not to be skipped.
func (m *modelJob) skip() {
	lacks := func(id string) bool { return m.status(id) != contract.StepStatus(contract.StatusSucceeded) }
	for m.next < len(m.plan) && slices.ContainsFunc(m.plan[m.next].SkipIfFailed, lacks) {
		m.statuses[m.next] = contract.StepSkipped
		m.next++
	}
	if m.next == len(m.plan) && m.submit.Loop == nil {
		m.end(contract.JobFinished, "")
	}
}

// begin begins the next entry in a kernel and returns its code; empty if nothing is left, or the
// job may not run there.
func (m *modelJob) begin(kernelID string) string {
	if named := m.submit.KernelID; named != "" && named != kernelID {
		m.lost(false)
		return ""
	}
	if m.retry {
		m.next--
	} else if m.skip(); m.state.Ended() {
		return ""
	}
	m.state, m.cause, m.retry = contract.JobRunning, "", false
	code := ""
	if m.next < len(m.plan) {
		code = m.plan[m.next].Code
		m.statuses[m.next] = contract.StepStatus(contract.StatusRunning)
	} else {
		code = m.submit.Loop.Code
		m.statuses = append(m.statuses, contract.StepStatus(contract.StatusRunning))
	}
	m.begun[fmt.Sprint(m.next, code)]++
	m.next++
	return code
}

// ended settles the entry that runs.
func (m *modelJob) ended(o execution.Outcome) {
	at := m.next - 1
	m.statuses[at] = contract.StepStatus(o.Status)
	isStep := at < len(m.plan)
	switch {
	case o.Status == contract.StatusKernelDied:
		m.end(contract.JobKernelLost, "")
	case m.deleted:
		m.end(contract.JobCancelled, contract.CauseDeleted)
	case o.InterruptAsked:
		m.end(contract.JobCancelled, contract.CauseInterrupted)
	case o.Status == contract.StatusTimedOut:
		m.end(contract.JobFailed, contract.CauseStepTimedOut)
	case o.Status == contract.StatusSucceeded && isStep:
		m.skip()
	case o.Status == contract.StatusSucceeded && o.Again == "False":
		m.end(contract.JobFinished, "")
	case o.Status == contract.StatusSucceeded && o.Again != "True":
		m.end(contract.JobFailed, contract.CauseAgainUnknown)
	case o.Status == contract.StatusSucceeded && m.next-len(m.plan) == m.submit.Loop.MaxRounds:
		m.end(contract.JobFailed, contract.CauseMaxRounds)
	case o.Status == contract.StatusSucceeded:
	case isStep && o.Error.EName == "ConnectionError" && m.begun[fmt.Sprint(at, m.plan[at].Code)] < max(1, m.plan[at].Attempts):
		m.retry, m.state, m.cause = true, contract.JobWaiting, contract.CauseRetry
	case isStep && m.plan[at].MayFail:
		m.skip()
	default:
		m.end(contract.JobFailed, contract.CauseStepFailed)
	}
}

// lost ends an unfinished job with its kernel; with its executor, a job of which nothing was left
// has finished.
func (m *modelJob) lost(withExecutor bool) {
	switch n := len(m.plan); {
	case m.state.Ended():
	case withExecutor && m.submit.Loop == nil && n > 0 && m.next == n && m.statuses[n-1] == contract.StepStatus(contract.StatusSucceeded):
		m.end(contract.JobFinished, "")
	default:
		m.end(contract.JobKernelLost, "")
	}
	m.retry = false
}

// program is a random sequence of what relays, the queue, the kernel and the executor's end do to
// jobs. It gives the turns itself, so that nothing needs a kernel.
type program struct {
	*Jobs
	t       *testing.T
	random  *rand.Rand
	dir     string
	jobs    []*modelJob
	running *modelJob
	record  *journal.Record // of running
	life    int
	named   int
}

// start opens the state folder as the next executor does.
func (p *program) start() {
	log := slog.New(slog.DiscardHandler)
	j, err := journal.Open(journal.Config{Dir: filepath.Join(p.dir, "executions"), Log: log})
	if err != nil {
		p.t.Fatal(err)
	}
	stopped, stop := context.WithCancel(p.t.Context())
	stop()
	k := kernel.New(kernel.Config{WorkDir: p.dir, StateDir: p.dir, Log: log})
	if err := k.Run(stopped); err != nil {
		p.t.Fatal(err)
	}
	memory := func() (used, available uint64, err error) { return 0, 1 << 40, nil }
	q := execution.New(execution.Config{Kernel: k, Journal: j, Memory: memory, Log: log})
	if p.Jobs, err = Open(Config{Dir: filepath.Join(p.dir, "jobs"), Queue: q, Journal: j, Log: log}); err != nil {
		p.t.Fatal(err)
	}
	p.life++
}

func (p *program) step() {
	switch n := p.random.IntN(40); {
	case n < 4:
		p.submitOne()
	case n < 18:
		p.beginOne()
	case n < 31:
		p.endOne()
	case n < 36:
		p.patchOne()
	case n < 38:
		p.deleteOne()
	case n == 38:
		p.kernelDies()
	default:
		p.executorEnds()
	}
	p.check()
}

// one returns a job, mostly a new one; nil if there is none.
func (p *program) one() *modelJob {
	if len(p.jobs) == 0 {
		return nil
	}
	return p.jobs[max(p.random.IntN(len(p.jobs)), len(p.jobs)-1-p.random.IntN(5))]
}

// newSteps are up to four steps with ids of their own, which may need steps before them.
func (p *program) newSteps(before []contract.JobStep) (steps []contract.JobStep) {
	for range p.random.IntN(5) {
		p.named++
		s := contract.JobStep{StepID: fmt.Sprint("s", p.named), Code: fmt.Sprint("code ", p.named), MayFail: p.random.IntN(2) == 0, Attempts: p.random.IntN(4)}
		if earlier := append(slices.Clone(before), steps...); len(earlier) > 0 && p.random.IntN(3) == 0 {
			s.SkipIfFailed = []string{earlier[p.random.IntN(len(earlier))].StepID}
		}
		steps = append(steps, s)
	}
	return steps
}

func (p *program) submitOne() {
	if m := p.one(); m != nil && p.random.IntN(4) == 0 {
		if _, err := p.Submit("caller", m.submit); err != nil {
			p.t.Fatalf("submitted again: %v", err)
		}
		other := m.submit
		other.Loop = &contract.JobLoop{Code: "other", Again: "True", MaxRounds: 1}
		if _, err := p.Submit("caller", other); !errors.Is(err, ErrOther) {
			p.t.Fatalf("submitted with other content: %v", err)
		}
		return
	}
	s := contract.JobSubmit{JobID: fmt.Sprint("j", len(p.jobs)), Steps: p.newSteps(nil)}
	if len(s.Steps) == 0 || p.random.IntN(3) == 0 {
		s.Loop = &contract.JobLoop{Code: "round of " + s.JobID, Again: "again", MaxRounds: 1 + p.random.IntN(4)}
	}
	if p.random.IntN(4) == 0 { // this kernel, or the one before
		s.KernelID = p.kernelID(p.random.IntN(4) / 3)
	}
	_, err := p.Submit(fmt.Sprint("caller", len(p.jobs)), s)
	if unfinished := p.unfinished(); (err != nil) != (unfinished == maxUnfinished) {
		p.t.Fatalf("submitted behind %d: %v", unfinished, err)
	}
	if err == nil {
		m := &modelJob{submit: s, plan: s.Steps, begun: map[string]int{}, state: contract.JobQueued}
		for range s.Steps {
			m.statuses = append(m.statuses, contract.StepWaits)
		}
		p.jobs = append(p.jobs, m)
	}
}

// kernelID names the kernel, or one before it.
func (p *program) kernelID(before int) string { return fmt.Sprint("kernel ", p.life-before) }

func (p *program) unfinished() (n int) {
	for _, m := range p.jobs {
		if !m.state.Ended() {
			n++
		}
	}
	return n
}

func (p *program) beginOne() {
	m := p.one()
	if m == nil || p.running != nil || m.state.Ended() {
		return
	}
	want := m.begin(p.kernelID(0))
	turn := p.byID[m.submit.JobID].Begin(p.kernelID(0))
	if turn.Code != want || (turn.Record == nil) != (want == "") || turn.Wanted {
		p.t.Fatalf("job %s has the turn %+v, want the code %q", m.submit.JobID, turn, want)
	}
	if turn.Record == nil {
		return
	}
	p.running, p.record = m, turn.Record
	if p.random.IntN(12) == 0 { // before it started
		m.statuses[m.next-1] = contract.StepStatus(contract.StatusCancelled)
		p.executorEnds()
		return
	}
	_ = turn.Record.Update(func(x *contract.Execution) {
		x.Status, x.KernelID = contract.StatusRunning, p.kernelID(0)
	})
}

func (p *program) endOne() {
	if p.running == nil {
		return
	}
	o := execution.Outcome{Again: []string{"True", "True", "False", ""}[p.random.IntN(4)], InterruptAsked: p.random.IntN(15) == 0}
	statuses := []contract.Status{contract.StatusSucceeded, contract.StatusSucceeded, contract.StatusFailed, contract.StatusTimedOut}
	o.Status = statuses[min(p.random.IntN(9)/2, 3)]
	if o.InterruptAsked && p.random.IntN(2) == 0 {
		o.Status = contract.StatusInterrupted
	}
	if o.Status == contract.StatusFailed {
		o.Error = &contract.ExecutionError{EName: []string{"ConnectionError", "ValueError"}[p.random.IntN(2)]}
	}
	p.finish(o)
}

func (p *program) finish(o execution.Outcome) {
	m := p.running
	p.record.UpdateInMemory(func(x *contract.Execution) { x.Error = o.Error })
	p.record.Finish(o.Status, "", 0)
	o.Execution = p.record.Snapshot()
	p.running = nil
	m.ended(o)
	if next := p.byID[m.submit.JobID].Ended(o); next.Wanted == m.state.Ended() || (next.After > 0) != m.retry {
		p.t.Fatalf("after an end as %s, job %s wants %+v; it is %s", o.Status, m.submit.JobID, next, m.state)
	}
}

func (p *program) patchOne() {
	m := p.one()
	if m == nil {
		return
	}
	if len(m.patches) > 0 && p.random.IntN(4) == 0 {
		if _, err := p.Patch(m.submit.JobID, m.patches[p.random.IntN(len(m.patches))]); err != nil {
			p.t.Fatalf("patched again: %v", err)
		}
		return
	}
	p.named++
	at := p.random.IntN(len(m.plan) + 1)
	patch := contract.JobPatch{PatchID: fmt.Sprint("p", p.named), Revision: m.revision + p.random.IntN(5)/4, Steps: p.newSteps(m.plan[:at])}
	if at < len(m.plan) {
		patch.From = m.plan[at].StepID
	}
	allowed := !m.state.Ended() && !m.deleted && patch.Revision == m.revision && at >= m.next && len(m.statuses) == len(m.plan)
	_, err := p.Patch(m.submit.JobID, patch)
	if allowed != (err == nil) || err != nil && !errors.Is(err, ErrConflict) {
		p.t.Fatalf("patched at %d, where %d is next: %v, want it allowed: %v", at, m.next, err, allowed)
	}
	if err == nil {
		m.plan, m.statuses, m.revision = append(m.plan[:at:at], patch.Steps...), m.statuses[:at:at], m.revision+1
		for range patch.Steps {
			m.statuses = append(m.statuses, contract.StepWaits)
		}
		m.patches = append(m.patches, patch)
	}
}

func (p *program) deleteOne() {
	m := p.one()
	if m == nil {
		return
	}
	if _, err := p.Delete(p.t.Context(), m.submit.JobID, false); err != nil {
		p.t.Fatal(err)
	}
	switch {
	case m == p.running:
		m.deleted = true
	case !m.state.Ended():
		m.end(contract.JobCancelled, contract.CauseDeleted)
		m.retry = false
	}
}

func (p *program) kernelDies() {
	if p.running != nil {
		p.finish(execution.Outcome{Execution: contract.Execution{Status: contract.StatusKernelDied}})
	}
	for _, m := range p.jobs {
		m.lost(false)
		p.byID[m.submit.JobID].Lost("the kernel died")
	}
	p.life++
}

// executorEnds kills the executor and starts the next one.
func (p *program) executorEnds() {
	if m := p.running; m != nil && p.record.Status() != contract.StatusQueued {
		m.statuses[m.next-1] = contract.StepStatus(contract.StatusLost)
	}
	p.running = nil
	for _, m := range p.jobs {
		m.lost(true)
	}
	p.start()
}

func (p *program) check() {
	p.t.Helper()
	for _, m := range p.jobs {
		x, err := p.Read(p.t.Context(), m.submit.JobID, 0, 0)
		if err != nil {
			p.t.Fatal(err)
		}
		listed := m.statuses
		if !m.state.Ended() {
			listed = listed[:m.next]
		}
		got, want := statuses(x), strings.Trim(fmt.Sprint(listed), "[]")
		if x.State != m.state || x.Cause != m.cause || x.Next != m.next || x.Revision != m.revision || got != want {
			p.t.Fatalf("job %s is %s %s at %d, revision %d: %s\nwant %s %s at %d, revision %d: %s (%s)", x.JobID,
				x.State, x.Cause, x.Next, x.Revision, got, m.state, m.cause, m.next, m.revision, want, x.Reason)
		}
	}
}

// Random programs leave what the model says, after every step.
func TestJobsFollowTheirModel(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	const programs, seed = 30, 1
	for n := range programs {
		p := &program{t: t, random: rand.New(rand.NewPCG(seed, uint64(n))), dir: t.TempDir()}
		p.start()
		for range 150 {
			p.step()
		}
	}
}
