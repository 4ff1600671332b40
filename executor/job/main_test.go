package job

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"colabrelay/executor/execution"
	"colabrelay/executor/journal"
	"colabrelay/executor/kernel/kerneltest"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

func TestMain(m *testing.M) { kerneltest.Main(m) }

// bench is jobs on a real kernel; both end with the test.
type bench struct {
	*Jobs
	t       *testing.T
	queue   *execution.Queue
	journal *journal.Journal
	kernel  *kerneltest.Life
	dir     string
	stop    func() // ends the queue
}

type settings struct {
	dir  string // of the state
	keep journal.Limits
}

func newBench(t *testing.T, set settings) *bench {
	t.Helper()
	b := &bench{t: t, kernel: kerneltest.Take(t, stacks.Old(t)), dir: set.dir}
	log := slog.New(slog.DiscardHandler)
	if b.dir == "" {
		b.dir = t.TempDir()
	}
	memory := func() (used, available uint64, err error) { return 1 << 30, 8 << 30, nil }
	var err error
	b.journal, err = journal.Open(journal.Config{Dir: filepath.Join(b.dir, "executions"), Limits: set.keep, Log: log})
	must(t, err)
	b.queue = execution.New(execution.Config{Kernel: b.kernel.Supervisor, Journal: b.journal, Memory: memory, Log: log})
	b.Jobs = Open(Config{Queue: b.queue, Journal: b.journal, Log: log})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.queue.Run(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	t.Cleanup(func() {
		busy := b.queue.Busy()
		b.stop()
		if busy || t.Failed() {
			b.kernel.Stop()
		} else {
			kerneltest.Put(stacks.Old(t), b.kernel)
		}
	})
	return b
}

// opened is what the next executor finds in a state folder. Its queue does not run.
func opened(t testing.TB, dir string) *Jobs {
	t.Helper()
	return openedLogging(t, dir, io.Discard)
}

func journalLogging(t testing.TB, dir string, log *slog.Logger) *journal.Journal {
	t.Helper()
	j, err := journal.Open(journal.Config{Dir: filepath.Join(dir, "executions"), Log: log})
	must(t, err)
	return j
}

func openedLogging(t testing.TB, dir string, out io.Writer) *Jobs {
	t.Helper()
	log := slog.New(slog.NewTextHandler(out, nil))
	j := journalLogging(t, dir, log)
	return Open(Config{Queue: execution.New(execution.Config{Journal: j, Log: log}), Journal: j, Log: log})
}

func (b *bench) submit(s contract.JobSubmit) contract.Job { return b.submitAs("caller", s) }

func (b *bench) submitAs(caller string, s contract.JobSubmit) contract.Job {
	b.t.Helper()
	x, err := b.Submit(caller, s)
	must(b.t, err)
	return x
}

// planned are the ids of a job's steps, also of those that have not begun.
func (b *bench) planned(id string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for _, s := range b.byID[id].steps {
		all = append(all, s.StepID)
	}
	return strings.Join(all, " ")
}

// end waits for the end of a job.
func (b *bench) end(id string) contract.Job {
	b.t.Helper()
	return b.await(id, func(x contract.Job) bool { return x.State.Ended() })
}

// await waits for a state of a job. Its entries are the first ones.
func (b *bench) await(id string, reached func(contract.Job) bool) contract.Job {
	b.t.Helper()
	within.Until(b.t, "job "+id+" has got there", func() bool {
		x, _, err := b.look(id, contract.MaxJobRounds+contract.MaxJobSteps)
		must(b.t, err)
		return reached(x)
	})
	x, err := b.Read(b.t.Context(), id, 0, 0)
	must(b.t, err)
	return x
}

// text is the standard output of an execution.
func (b *bench) text(id string) string {
	b.t.Helper()
	x, err := b.journal.Read(b.t.Context(), id, journal.ReadRequest{MaxBytes: 1 << 30})
	must(b.t, err)
	var out strings.Builder
	for _, e := range x.Events {
		if e.Type == contract.EventStream && e.Name == contract.Stdout {
			out.WriteString(e.Text)
		}
	}
	return out.String()
}

// run submits code of its own and waits for its end.
func (b *bench) run(caller, code string) contract.Execution {
	b.t.Helper()
	id, err := b.queue.Submit(caller, contract.Submit{RequestID: fmt.Sprintf("r-%s-%d", caller, time.Now().UnixNano()), Code: code})
	must(b.t, err)
	x, err := b.journal.Read(b.t.Context(), id, journal.ReadRequest{Wait: time.Minute, UntilEnd: true})
	must(b.t, err)
	return x
}

// steps are named a, b, c and so on.
func steps(codes ...string) (all []contract.JobStep) {
	for i, code := range codes {
		all = append(all, contract.JobStep{StepID: string(rune('a' + i)), Code: code})
	}
	return all
}

// statuses are those of the entries, as one text.
func statuses(x contract.Job) string {
	var all []string
	for _, e := range x.Steps {
		all = append(all, string(e.Status))
	}
	return strings.Join(all, " ")
}

func wantState(t *testing.T, x contract.Job, state contract.JobState, cause contract.JobCause) {
	t.Helper()
	if x.State != state || x.Cause != cause {
		t.Fatalf("the job is %s %s (%s), want %s %s; its entries are %s", x.State, x.Cause, x.Reason, state, cause, statuses(x))
	}
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
