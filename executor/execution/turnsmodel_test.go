package execution

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/tier"
)

// modelRun is what the model knows of a submit.
type modelRun struct {
	caller  string
	status  contract.Status
	started int // how many turns there had been when it was submitted
	ahead   int // runs of its caller that waited then
}

// program is a random sequence of what callers, their sources, the kernel and its end do to a
// queue.
type program struct {
	*Queue
	t       *testing.T
	random  *rand.Rand
	runs    map[string]*modelRun
	sources map[string]*member
	turns   []string // whose they were, each with a "+" if it was that of a source
	life    int
}

func (p *program) step() {
	switch p.random.IntN(12) {
	case 0, 1, 2, 3:
		p.submit()
	case 4:
		p.joinOne()
	case 5, 6, 7:
		p.startNext()
	case 8, 9:
		p.end()
	case 10:
		if i := slices.IndexFunc(p.pending, func(s *submission) bool { return s.member == nil && p.random.IntN(3) == 0 }); i >= 0 {
			p.runs[p.pending[i].code].status = contract.StatusCancelled
			p.cancel(p.pending[i].ID, "cancelled before it started")
		}
	case 11:
		if p.random.IntN(4) == 0 {
			p.kernelDies()
		}
	}
	p.check()
}

func (p *program) aCaller() string { return string(rune('a' + p.random.IntN(3))) }

func (p *program) submit() {
	name, run := fmt.Sprint("n", len(p.runs)), &modelRun{caller: p.aCaller(), status: contract.StatusQueued, started: len(p.turns)}
	for _, x := range p.runs {
		if x.status == contract.StatusQueued && x.caller == run.caller {
			run.ahead++
		}
	}
	p.runs[name] = run
	p.add(p.t, name, run.caller)
}

func (p *program) joinOne() {
	caller, name := p.aCaller(), fmt.Sprint("s", len(p.sources))
	p.sources[name] = p.join(caller, &fakeSource{name: name})
}

func (p *program) startNext() {
	s := p.next()
	switch {
	case s == nil:
	case s.member != nil:
		p.turns = append(p.turns, s.caller+"+")
		p.goOn(s.member, Next{Wanted: p.random.IntN(6) > 0})
		p.yield()
	default:
		_ = s.Update(func(x *contract.Execution) { x.Status = contract.StatusRunning })
		run := p.runs[s.code]
		if run.status != contract.StatusQueued {
			p.t.Fatalf("%s starts: %+v", s.code, run)
		}
		run.status = contract.StatusRunning
		p.checkWait(s.code, run)
		p.turns = append(p.turns, run.caller)
	}
}

// checkWait: while a run waited behind others of its caller, nobody else had many more turns
// than that caller, and neither had anybody's sources.
func (p *program) checkWait(name string, run *modelRun) {
	turns := map[string]int{}
	for _, who := range p.turns[run.started:] {
		turns[who]++
	}
	for who, n := range turns {
		if n > run.ahead+2 {
			p.t.Fatalf("%s of %s waited behind %d of its caller, while %s had %d turns", name, run.caller, run.ahead, who, n)
		}
	}
}

// end ends the running execution.
func (p *program) end() {
	if p.running == nil {
		return
	}
	ends := []contract.Status{contract.StatusSucceeded, contract.StatusFailed, contract.StatusTimedOut, contract.StatusInterrupted}
	p.finish(ends[p.random.IntN(len(ends))])
}

func (p *program) finish(status contract.Status) {
	p.runs[p.running.Snapshot().RequestID].status = status
	p.running.Finish(status, "", 0)
	p.yield()
}

// kernelDies ends what needs the kernel, as runner.died does, and starts the next one. Some runs
// are submitted before that is ready.
func (p *program) kernelDies() {
	if p.running != nil {
		p.finish(contract.StatusKernelDied)
	}
	waited := maps.Clone(p.sources)
	p.cancelAll("the kernel ended")
	for name, m := range waited {
		if slices.Contains(p.members, m) {
			p.t.Fatalf("source %s outlives its kernel", name)
		}
	}
	clear(p.sources)
	for _, x := range p.runs {
		if x.status == contract.StatusQueued {
			x.status = contract.StatusCancelled
		}
	}
	for range p.random.IntN(3) {
		p.submit()
	}
	p.life++
	p.kernelStarted(fmt.Sprint("kernel ", p.life))
}

func (p *program) check() {
	p.t.Helper()
	ahead := 0
	if p.running != nil {
		ahead = 1
	}
	waiting := map[string]int{}
	for i, s := range p.pending {
		if s.member == nil {
			waiting[s.code] = i + ahead
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.runs)) {
		x, want := p.journal.ByRequest(name).Snapshot(), p.runs[name]
		position, waits := waiting[name]
		if x.Status != want.status || waits != (want.status == contract.StatusQueued) || waits && x.QueuePosition != position {
			p.t.Fatalf("%s is %s (%s) at %d, waits: %v; want %s at %d", name, x.Status, x.Reason, x.QueuePosition, waits, want.status, position)
		}
	}
	for _, m := range p.members {
		if !slices.ContainsFunc(p.pending, func(s *submission) bool { return s.member == m }) {
			p.t.Fatalf("source %s has no turn", m.Source.(*fakeSource).name)
		}
	}
}

// Random programs leave what the model says, after every step.
func TestTheQueueFollowsItsModel(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	const programs, seed = 100, 1
	for n := range programs {
		p := &program{
			Queue: unstarted(t), t: t, random: rand.New(rand.NewPCG(seed, uint64(n))),
			runs: map[string]*modelRun{}, sources: map[string]*member{},
		}
		p.kernelStarted("kernel 0")
		for range 150 {
			p.step()
		}
	}
}
