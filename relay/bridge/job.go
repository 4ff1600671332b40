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
	"colabrelay/shared/keep"
)

// keepResult is how long the outcome of a bridge that nobody waited for is kept for the next
// call. Later the VM may be another one.
const keepResult = 10 * time.Minute

// job is one bridge that is being built in the background.
type job struct {
	request Request
	nb      Notebook
	ends    context.Context // of the Bridge: what needs no tab outlives the loss of one
	say     func(step string)
}

// join joins the bridge in progress, or one in the same tab whose outcome nobody got, or begins
// another one.
func (b *Bridge) join(nb Notebook, r Request) (*keep.Flight[Paired], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	about, inProgress := b.jobs.Find("")
	switch j, _ := about.(job); {
	case about == nil:
	case !inProgress && (j.nb != nb || j.request.Name != r.Name):
		b.jobs.Forget("")
	case j.request.Name != r.Name:
		return nil, busyWith(j.request)
	}
	return b.jobs.Join("", job{request: r, nb: nb}, func(ctx context.Context, say func(string)) (Paired, error) {
		return b.work(ctx, &job{r, nb, ctx, say})
	})
}

func busyWith(r Request) error {
	if r.Name == "" {
		return fmt.Errorf("%w, by a call without a runtime", ErrBusy)
	}
	return fmt.Errorf("%w, for the runtime %q", ErrBusy, r.Name)
}

// work builds the bridge. It ends early when the tab is lost or the Bridge closed.
func (b *Bridge) work(ctx context.Context, j *job) (Paired, error) {
	ctx, cancel := context.WithCancelCause(ctx)
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
	return paired, err
}

// lookLimit bounds the look for executors of earlier bridges. Most of them ended with their
// VMs, and a tunnel's service may take its time to say so.
const lookLimit = 10 * time.Second

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

// lookForEarlier starts a look. The caller must end it.
func (b *Bridge) lookForEarlier(ctx context.Context) *look {
	l := &look{}
	ctx, l.cancel = context.WithTimeout(ctx, lookLimit)
	stored, _ := b.cfg.Store.List() // what is wrong with the list is reported when it is written
	for _, r := range stored {
		if !r.FromPage || r.URL == "" {
			continue
		}
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

// onThisVM returns the executor that runs on the notebook's VM, of which the cell with which printed
// output; nil if none of them does.
func onThisVM(output string, running []executor) *executor {
	for line := range strings.Lines(output) {
		ids, reported := strings.CutPrefix(line, "colab-relay-instances:")
		for i := range running {
			if reported && slices.Contains(strings.Fields(ids), running[i].instance) {
				return &running[i]
			}
		}
	}
	return nil
}

// already is the outcome for an executor that runs on the notebook's VM.
func (b *Bridge) already(ctx context.Context, j *job, found *executor) Paired {
	paired := Paired{Runtime: found.runtime, Already: true}.withDefault(b)
	if b.last.instance == found.instance {
		paired.Notes = append(paired.Notes, b.statusNote(ctx, j))
	}
	return paired
}
