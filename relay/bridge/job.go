package bridge

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"colabrelay/relay/page"
	"colabrelay/relay/pairing"
)

// keepResult is how long the outcome of a bridge that nobody waited for is kept for the next
// call. Later the VM may be another one.
const keepResult = 10 * time.Minute

// job is one bridge that is being built in the background, and then its outcome.
type job struct {
	request Request
	nb      Notebook
	done    chan struct{} // closed at the end, after which paired, err and ended do not change

	paired Paired
	err    error
	ended  time.Time // by the wall clock, which goes on while this computer sleeps

	mu        sync.Mutex
	steps     []string      // so far, in order; a bridge has few
	changed   chan struct{} // closed, and replaced, when steps changes
	delivered bool          // a caller got the outcome
}

// jobFor returns the job that a call joins: the one in progress, one whose outcome nobody got,
// or else a new one, and whether it is not new. A job in a tab that was lost ends by itself;
// jobFor waits for that.
func (b *Bridge) jobFor(ctx context.Context, nb Notebook, r Request) (j *job, joined bool, err error) {
	for {
		j, joined, err = b.joinOrStart(nb, r)
		if err != nil || !joined || j.nb == nb {
			return j, joined, err
		}
		select {
		case <-j.done:
		case <-ctx.Done():
			_, newest, _ := j.stepsFrom(0)
			return nil, false, &StartingError{newest}
		}
	}
}

func (b *Bridge) joinOrStart(nb Notebook, r Request) (j *job, joined bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j = b.job
	switch {
	case b.closed:
		return nil, false, ErrClosed
	case j == nil || j.isDone() && !j.undelivered(nb, r):
	case j.request.Name != r.Name:
		return nil, false, busyWith(j.request)
	default:
		return j, true, nil
	}
	j = &job{request: r, nb: nb, done: make(chan struct{}), changed: make(chan struct{})}
	b.job = j
	b.jobs.Go(func() { b.work(j) })
	return j, false, nil
}

func busyWith(r Request) error {
	if r.Name == "" {
		return fmt.Errorf("%w, by a call without a runtime", ErrBusy)
	}
	return fmt.Errorf("%w, for the runtime %q", ErrBusy, r.Name)
}

func (j *job) isDone() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// undelivered reports whether the outcome of j, which has ended, answers a call: nobody got it
// yet, it is fresh, and it is about the same tab.
func (j *job) undelivered(nb Notebook, r Request) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.delivered && j.nb == nb && j.request.Name == r.Name && time.Since(j.ended) < keepResult
}

// work builds the bridge. It ends early when the tab is lost or the Bridge closed.
func (b *Bridge) work(j *job) {
	ctx, cancel := context.WithCancelCause(b.ctx)
	defer cancel(nil)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-j.nb.Done():
			cancel(page.ErrTabLost)
		case <-ctx.Done():
		}
	})
	began := time.Now()
	paired, err := b.build(ctx, j)
	cancel(nil)
	watch.Wait()
	b.cfg.Log.Info("bridge ended", "runtime", paired.Runtime.Name, "already", paired.Already, "ok", err == nil, "dur", time.Since(began))
	j.paired, j.err, j.ended = paired, err, time.Now().Round(0)
	close(j.done)
}

// say adds a step for those who wait.
func (j *job) say(step string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.steps = append(j.steps, step)
	close(j.changed)
	j.changed = make(chan struct{})
}

// stepsFrom returns the steps from index from on, the newest one of all, and a channel that is
// closed when there are more.
func (j *job) stepsFrom(from int) (later []string, newest string, changed <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n := len(j.steps); n > 0 {
		newest = j.steps[n-1]
	}
	return slices.Clone(j.steps[min(from, len(j.steps)):]), newest, j.changed
}

// await waits for the job's outcome or for ctx, and passes on each step. Who joins a job gets
// the steps from the current one on.
func (j *job) await(ctx context.Context, joined bool, step func(string)) (Paired, error) {
	told := 0
	if joined {
		before, _, _ := j.stepsFrom(0)
		told = max(len(before)-1, 0)
	}
	for {
		later, newest, changed := j.stepsFrom(told)
		for _, each := range later {
			step(each)
		}
		told += len(later)
		select {
		case <-changed:
			continue
		default:
		}
		select {
		case <-j.done:
			return j.deliver()
		case <-changed:
		case <-ctx.Done():
			if !j.isDone() {
				return Paired{}, &StartingError{newest}
			}
		}
	}
}

func (j *job) deliver() (Paired, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.delivered = true
	return j.paired, j.err
}

const (
	// lookLimit bounds the look for executors of earlier bridges. Most of them ended with their
	// VMs, and a tunnel's service may take its time to say so.
	lookLimit = 10 * time.Second
	// maxLooked bounds the pairings that are tried. Those whose names this bridge may take are
	// among them, however many there are.
	maxLooked = 8
)

// executor is one of an earlier bridge that answers.
type executor struct {
	runtime  pairing.Runtime
	instance string
}

func isAmong(list []executor, name string) bool {
	return slices.ContainsFunc(list, func(e executor) bool { return e.runtime.Name == name })
}

// look is a look for the executors of earlier bridges, while the page gets ready.
type look struct {
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu    sync.Mutex
	found []executor
}

// lookForEarlier starts a look for a bridge of that name. The caller must end it.
func (b *Bridge) lookForEarlier(ctx context.Context, asked string) *look {
	l := &look{}
	ctx, l.cancel = context.WithTimeout(ctx, lookLimit)
	stored, _ := b.cfg.Store.List() // what is wrong with the list is reported when it is written
	stored = slices.DeleteFunc(stored, func(r pairing.Runtime) bool { return !r.FromPage || r.URL == "" })
	slices.SortStableFunc(stored, func(x, y pairing.Runtime) int {
		return rank(x.Name, asked) - rank(y.Name, asked)
	})
	for _, r := range stored[:min(len(stored), maxLooked)] {
		l.all.Go(func() {
			if instance, err := b.cfg.Reach(ctx, r); err == nil && instance != "" {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.found = append(l.found, executor{r, instance})
			}
		})
	}
	return l
}

// rank orders names: first those whose pairings a bridge could replace.
func rank(name, asked string) int {
	if name == asked || slices.Contains(names, name) {
		return 0
	}
	return 1
}

// result waits for the end of the look and returns what answered.
func (l *look) result() []executor {
	l.all.Wait()
	return l.found
}

func (l *look) end() {
	l.cancel()
	l.all.Wait()
}

// which shows the instance ids of the executors on a VM.
//
//go:embed which.py
var which string

const whichMarker = "colab-relay-instances:"

// onThisVM returns the executor that runs on the notebook's VM; nil if none of them does.
func onThisVM(ctx context.Context, c *cell, running []executor) (found *executor, err error) {
	if len(running) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, editLimit, fmt.Errorf("%w: it did not run one within %.0f s", ErrPage, editLimit.Seconds()))
	defer cancel()
	if err := c.change(ctx, which); err != nil {
		return nil, err
	}
	err = c.outputs(ctx, func(output string) (bool, error) {
		for line := range strings.Lines(output) {
			ids, reported := strings.CutPrefix(line, whichMarker)
			for i := range running {
				if slices.Contains(strings.Fields(ids), running[i].instance) && reported {
					found = &running[i]
				}
			}
			if reported {
				return true, nil
			}
		}
		return false, nil
	})
	return found, err
}

// already is the outcome for an executor that runs on the notebook's VM.
func (b *Bridge) already(ctx context.Context, j *job, found *executor) Paired {
	if found == nil {
		return Paired{}
	}
	paired := Paired{Runtime: found.runtime, Already: true}.withDefault(b)
	if b.last.instance == found.instance {
		paired.Notes = append(paired.Notes, b.statusNote(ctx, j))
	}
	return paired
}
