package execution

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"colabrelay/executor/journal"
	"colabrelay/executor/kernel"
	"colabrelay/executor/kernel/kerneltest"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/within"
)

// bench is a queue on a real kernel; both end with the test.
type bench struct {
	*Queue
	t      testing.TB
	kernel *kernel.Supervisor
	stop   func() // ends the queue, then the kernel
	ids    atomic.Int64
}

// settings are a bench's. Zero values are replaced by defaults.
type settings struct {
	ownKernel bool   // no other test uses the kernel, before or afterwards
	dir       string // of the journal
	limits    Limits
	keep      journal.Limits
	memory    func() (used, available uint64, err error)
}

func newBench(t testing.TB, s stacks.Stack, set settings) *bench {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	shared := !set.ownKernel
	begin := kerneltest.Take
	if !shared {
		begin = kerneltest.Start
	}
	k := begin(t, s)
	if set.dir == "" {
		set.dir = t.TempDir()
	}
	if set.memory == nil {
		set.memory = func() (uint64, uint64, error) { return 1 << 30, 8 << 30, nil }
	}
	j, err := journal.Open(journal.Config{Dir: set.dir, Limits: set.keep, Log: log})
	must(t, err)
	q := New(Config{Kernel: k.Supervisor, Journal: j, Memory: set.memory, Limits: set.limits, Log: log})
	b := &bench{Queue: q, t: t, kernel: k.Supervisor}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	stopQueue := sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	b.stop = func() {
		stopQueue()
		k.Stop()
	}
	t.Cleanup(func() {
		free := !b.Busy() // else its code may go on
		stopQueue()
		if shared && free && !t.Failed() {
			kerneltest.Put(s, k)
		} else {
			k.Stop()
		}
	})
	return b
}

func (b *bench) submit(code string, timeout float64) string {
	b.t.Helper()
	id, err := b.Submit("", contract.Submit{RequestID: fmt.Sprint("r", b.ids.Add(1)), Code: code, TimeoutSeconds: timeout})
	must(b.t, err)
	return id
}

// settle waits for the end or an input request and returns all events.
func (b *bench) settle(id string) contract.Execution {
	b.t.Helper()
	x, err := b.journal.Read(b.t.Context(), id, journal.ReadRequest{Wait: within.Limit, MaxBytes: 1 << 30, UntilEnd: true})
	must(b.t, err)
	return x
}

func (b *bench) run(code string) contract.Execution {
	b.t.Helper()
	return b.settle(b.submit(code, 0))
}

// awaitEvent waits until the execution has an event past offset.
func (b *bench) awaitEvent(id string, offset int64) contract.Execution {
	b.t.Helper()
	x, err := b.journal.Read(b.t.Context(), id, journal.ReadRequest{Offset: offset, Wait: within.Limit})
	must(b.t, err)
	return x
}

func text(x contract.Execution, name string) string {
	var b strings.Builder
	for _, e := range x.Events {
		if e.Type == contract.EventStream && e.Name == name {
			b.WriteString(e.Text)
		}
	}
	return b.String()
}

func wantStatus(t testing.TB, x contract.Execution, status contract.Status) {
	t.Helper()
	if x.Status != status {
		t.Fatalf("status = %s (%s), want %s; error %+v", x.Status, x.Reason, status, x.Error)
	}
}

// read returns what there is of an execution now.
func read(t *testing.T, j *journal.Journal, id string) contract.Execution {
	t.Helper()
	x, err := j.Read(t.Context(), id, journal.ReadRequest{})
	must(t, err)
	return x
}

// reopened is what the next executor finds in the folder of a journal.
func reopened(t *testing.T, dir string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(journal.Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	return j
}
