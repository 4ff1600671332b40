package execution

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"colabrelay/shared/contract"
)

// modelRun is what the model knows of a submit.
type modelRun struct {
	caller, after string
	any, chained  bool
	status        contract.Status
	life          int // in which it ran
	started       int // how many had started when it was submitted
	ahead         int // waiting runs of its caller that follow none, when it was submitted
}

// model is the rule of contract.Submit.AfterRequestID, stated again: nothing of the queue's
// order or of its passes.
type model struct {
	runs   map[string]*modelRun
	life   int
	starts []string // the callers, each time one of their runs starts; "+" for one that follows another
}

// doomed reports whether a waiting run must not start any more.
func (m *model) doomed(x *modelRun) bool {
	if !x.chained {
		return false
	}
	p, known := m.runs[x.after]
	switch {
	case !known || p.status == contract.StatusCancelled:
		return true
	case !p.status.Finished():
		return false
	}
	return p.life != m.life || p.status != contract.StatusSucceeded && !x.any
}

// settle cancels the doomed until there are none.
func (m *model) settle() {
	for again := true; again; {
		again = false
		for _, x := range m.runs {
			if x.status == contract.StatusQueued && m.doomed(x) {
				x.status, again = contract.StatusCancelled, true
			}
		}
	}
}

// program is a random sequence of what callers, the kernel and its end do to a queue.
type program struct {
	*Queue
	t      *testing.T
	random *rand.Rand
	model  model
	names  []string
}

func (p *program) step() {
	switch p.random.IntN(12) {
	case 0, 1, 2, 3, 4:
		p.submit()
	case 5, 6, 7:
		p.startNext()
	case 8, 9:
		p.end()
	case 10:
		if len(p.pending) > 0 {
			i := p.random.IntN(len(p.pending))
			p.model.runs[p.pending[i].code].status = contract.StatusCancelled
			p.cancel(p.pending[i].ID, "cancelled before it started")
		}
	case 11:
		if p.random.IntN(4) == 0 {
			p.kernelDies()
		}
	}
	p.model.settle()
	p.check()
}

func (p *program) submit() {
	name := fmt.Sprint("n", len(p.names))
	s := contract.Submit{RequestID: name}
	if p.random.IntN(3) > 0 { // mostly a recent one, sometimes one that comes later or never
		s.AfterRequestID = fmt.Sprint("n", max(0, len(p.names)+1-p.random.IntN(6)))
		s.AfterAny = p.random.IntN(3) == 0
	}
	if s.AfterRequestID == name {
		return // the API refuses it
	}
	caller := string(rune('a' + p.random.IntN(3)))
	run := &modelRun{
		caller: caller, after: s.AfterRequestID, any: s.AfterAny, chained: s.AfterRequestID != "",
		status: contract.StatusQueued, started: len(p.model.starts),
	}
	for _, x := range p.model.runs {
		if x.status == contract.StatusQueued && x.caller == caller && !x.chained {
			run.ahead++
		}
	}
	p.model.runs[name] = run
	p.names = append(p.names, name)
	p.addSubmit(p.t, caller, s)
	p.model.settle()
}

func (p *program) startNext() {
	s := p.next()
	if s == nil {
		return
	}
	_ = s.Update(func(x *contract.Execution) { x.Status, x.KernelID = contract.StatusRunning, p.life })
	run := p.model.runs[s.code]
	if run.status != contract.StatusQueued || p.model.doomed(run) || run.chained && !p.model.runs[run.after].status.Finished() {
		p.t.Fatalf("%s starts: %+v", s.code, run)
	}
	run.status, run.life = contract.StatusRunning, p.model.life
	if !run.chained {
		p.checkWait(s.code, run)
	}
	who := run.caller
	if run.chained {
		who += "+"
	}
	p.model.starts = append(p.model.starts, who)
}

// checkWait: while a run that follows none waited behind others of its caller, nobody else
// had many more turns than that caller.
func (p *program) checkWait(name string, run *modelRun) {
	turns := map[string]int{}
	for _, who := range p.model.starts[run.started:] {
		turns[who]++
	}
	for who, n := range turns {
		if n > run.ahead+2 {
			p.t.Fatalf("%s of %s waited behind %d of its caller, while %s had %d turns", name, run.caller, run.ahead, who, n)
		}
	}
}

// end ends the running execution, which may keep the kernel until the next end.
func (p *program) end() {
	if p.running == nil {
		return
	}
	run := p.model.runs[p.running.Snapshot().RequestID]
	if !run.status.Finished() {
		ends := []contract.Status{
			contract.StatusSucceeded, contract.StatusSucceeded, contract.StatusSucceeded,
			contract.StatusFailed, contract.StatusTimedOut, contract.StatusInterrupted,
		}
		run.status = ends[p.random.IntN(len(ends))]
		p.running.Finish(run.status, "", 0)
		if run.status == contract.StatusTimedOut {
			p.runningChanged(prompt{})
			return
		}
	}
	p.yield()
}

// kernelDies ends what needs the kernel, as runner.died does, and starts the next one.
func (p *program) kernelDies() {
	if p.running != nil {
		if run := p.model.runs[p.running.Snapshot().RequestID]; !run.status.Finished() {
			run.status = contract.StatusKernelDied
			p.running.Finish(run.status, "", 0)
		}
		p.yield()
	}
	p.cancelAll("the kernel ended")
	p.model.life++
	for _, x := range p.model.runs {
		if x.status == contract.StatusQueued {
			x.status = contract.StatusCancelled
		}
	}
	if p.random.IntN(2) == 0 { // otherwise some are submitted before the next kernel is ready
		p.kernelStarted(fmt.Sprint("kernel ", p.model.life))
		return
	}
	p.submit()
	p.submit()
	p.kernelStarted(fmt.Sprint("kernel ", p.model.life))
}

func (p *program) check() {
	p.t.Helper()
	ahead := 0
	if p.running != nil {
		ahead = 1
	}
	waiting := map[string]int{}
	for i, s := range p.pending {
		waiting[s.code] = i + ahead
	}
	for _, name := range slices.Sorted(maps.Keys(p.model.runs)) {
		x, want := p.journal.ByRequest(name).Snapshot(), p.model.runs[name]
		position, waits := waiting[name]
		if x.Status != want.status || waits != (want.status == contract.StatusQueued) || waits && x.QueuePosition != position {
			p.t.Fatalf("%s is %s (%s) at %d, waits: %v; want %s at %d", name, x.Status, x.Reason, x.QueuePosition, waits, want.status, position)
		}
	}
}

// Random programs leave what the model says, after every step.
func TestChainsFollowTheModel(t *testing.T) {
	t.Parallel()
	programs, seed := 30, rand.Uint64()
	if os.Getenv("LONG") != "" {
		programs = 2000
	}
	t.Logf("seed %d", seed)
	for n := range programs {
		p := &program{Queue: unstarted(t), t: t, random: rand.New(rand.NewPCG(seed, uint64(n)))}
		p.model.runs = map[string]*modelRun{}
		p.kernelStarted("kernel 0")
		for range 150 {
			p.step()
		}
	}
}
