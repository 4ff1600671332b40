package main

import (
	"context"
	"sync"
	"time"

	"colabrelay/relay/client"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/vm"
	"colabrelay/shared/contract"
)

// keepAlive keeps the VMs that this computer started alive while executions run on them.
type keepAlive struct {
	keeper *vm.Keeper
	pool   *runtimes.Pool // set before start
	stop   context.CancelFunc
	ended  sync.WaitGroup
}

// newKeepAlive returns one that starts nothing. resume asks all VMs at the start for runs of
// an earlier relay.
func newKeepAlive(vms *vm.Manager, resume bool) *keepAlive {
	k := &keepAlive{stop: func() {}}
	k.keeper = vms.Keeper(k.work, resume)
	return k
}

// start begins to keep VMs alive. A caller must close it.
func (k *keepAlive) start(ctx context.Context, pool *runtimes.Pool) {
	ctx, k.stop = context.WithCancel(ctx)
	k.pool = pool
	k.ended.Go(func() { k.keeper.Run(ctx) })
}

func (k *keepAlive) close() {
	k.stop()
	k.ended.Wait()
}

// workTime bounds the question what an executor does.
const workTime = 30 * time.Second

// work asks the executor of a runtime for its executions.
func (k *keepAlive) work(ctx context.Context, runtime string) (vm.Work, error) {
	ctx, cancel := context.WithTimeout(ctx, workTime)
	defer cancel()
	target, err := k.pool.Resolve(runtime)
	if err != nil {
		return vm.Idle, err
	}
	got, err := target.Client.List(ctx, contract.MaxListExecutions)
	if err != nil {
		return vm.Idle, err
	}
	work := vm.Idle
	for _, e := range got.Executions {
		switch {
		case e.Status == contract.StatusRunning:
			return vm.Working, nil
		case !e.Status.Finished():
			work = vm.Waiting
		}
	}
	return work, nil
}

// record is runtimes.Config.Record: it reports executions to the Keeper, and to next if that
// is not nil.
func (k *keepAlive) record(next func(runtime string) client.Recorder) func(runtime string) client.Recorder {
	return func(runtime string) client.Recorder {
		r := reporter{keeper: k.keeper, runtime: runtime}
		if next != nil {
			r.next = next(runtime)
		}
		return r
	}
}

// reporter is a client.Recorder of one runtime's executions.
type reporter struct {
	keeper  *vm.Keeper
	runtime string
	next    client.Recorder // nil for none
}

func (r reporter) Submitted(instanceID string, s contract.Submit, e contract.Execution) {
	r.keeper.Report(r.runtime, e.ExecutionID, e.Status.Finished())
	if r.next != nil {
		r.next.Submitted(instanceID, s, e)
	}
}

func (r reporter) Answered(instanceID string, e contract.Execution) {
	r.keeper.Report(r.runtime, e.ExecutionID, e.Status.Finished())
	if r.next != nil {
		r.next.Answered(instanceID, e)
	}
}

func (r reporter) Fetched(instanceID, executionID string, blob contract.Blob, content []byte) {
	if r.next != nil {
		r.next.Fetched(instanceID, executionID, blob, content)
	}
}
