package remoterun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"colabrelay/relay/plain"
	"colabrelay/relay/runlist"
	"colabrelay/shared/contract"
)

// Errors of Find and FindCurrent.
var (
	ErrNoSuchRun = errors.New("no such run")
	ErrAmbiguous = errors.New("several runs begin with that id")
	ErrNoneRuns  = errors.New("the VM is not running anything; `colab-relay ps` lists the runs: name one by its id")
)

// Find returns the run whose id begins with prefix.
func Find(runs []contract.Execution, prefix string) (contract.Execution, error) {
	found := runlist.Find(runs, prefix)
	switch len(found) {
	case 0:
		return contract.Execution{}, fmt.Errorf("%w: %.80q; `colab-relay ps` lists them", ErrNoSuchRun, prefix)
	case 1:
		return found[0], nil
	}
	var b strings.Builder
	for i, e := range found {
		if i == runlist.MaxAmbiguous {
			fmt.Fprintf(&b, "\n  and %d more", len(found)-i)
			break
		}
		fmt.Fprintf(&b, "\n  %s  %s  %s", plain.Line(e.ExecutionID), plain.Line(string(e.Status)), plain.Line(e.CodePreview))
	}
	return contract.Execution{}, fmt.Errorf("%w, %q:%s", ErrAmbiguous, prefix, b.String())
}

// FindOnVM returns the run of the VM whose id begins with prefix. A whole id may be older
// than the runs that the VM lists.
func FindOnVM(ctx context.Context, vm VM, prefix string) (contract.Execution, error) {
	list, err := vm.Client.List(ctx, contract.MaxListExecutions)
	if err != nil {
		return contract.Execution{}, err
	}
	e, err := Find(list.Executions, prefix)
	if !errors.Is(err, ErrNoSuchRun) || len(prefix) != idLength {
		return e, err
	}
	e, unlisted := vm.Client.Execution(ctx, prefix, 0, 0, 1)
	if refused, ok := errors.AsType[*contract.Error](unlisted); ok && refused.Code == contract.CodeNotFound {
		return contract.Execution{}, err
	}
	return e, unlisted
}

// idLength is that of an execution's id, a UUID.
const idLength = 36

// FindCurrent returns the run that has the kernel.
func FindCurrent(ctx context.Context, vm VM) (contract.Execution, error) {
	return findFirst(ctx, vm, ErrNoneRuns, func(e contract.Execution) bool {
		return e.Status == contract.StatusRunning || e.Status == contract.StatusWaitingForInput
	})
}

// FindNewest returns the run that was submitted last, of those whose code preview is not that
// of a relay's own code.
func FindNewest(ctx context.Context, vm VM, internal func(codePreview string) bool) (contract.Execution, error) {
	return findFirst(ctx, vm, errors.New("the VM has no runs yet"), func(e contract.Execution) bool { return !internal(e.CodePreview) })
}

func findFirst(ctx context.Context, vm VM, none error, wanted func(contract.Execution) bool) (contract.Execution, error) {
	list, err := vm.Client.List(ctx, contract.MaxListExecutions)
	if err != nil {
		return contract.Execution{}, err
	}
	if at := slices.IndexFunc(list.Executions, wanted); at >= 0 {
		return list.Executions[at], nil
	}
	return contract.Execution{}, none
}
